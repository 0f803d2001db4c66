package toolstore

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"berth/proto"
	"berth/tools/toolstore/field"
)

// Bounds of a tool.
const (
	MaxCode  = 96 << 10 // bytes of its code
	MaxInput = 96 << 10 // bytes of a run's input, as JSON

	maxEnv         = 64       // variables
	maxEnvValue    = 32 << 10 // bytes
	maxTimeout     = 3600.0   // seconds
	leastTimeout   = 0.1
	usualTimeout   = 30.0
	maxDescription = field.MaxDescription // bytes
	toolPrefix     = "tool_"
	runPrefix      = "run_"
	kindOfTool     = "code_runner"
	kindOfConfig   = "CodeRunner"
	pythonRuntime  = "python"
)

// The forms of names. A name of a tool must not look like the ID of one.
var (
	toolName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	envName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// Approval actions. No action is like allow.
const (
	ApprovalAllow  = "allow"  // runs start at once
	ApprovalReview = "review" // each run waits until a person decides
	ApprovalDeny   = "deny"   // the tool does not run
)

var approvalActions = []string{"", ApprovalAllow, ApprovalReview, ApprovalDeny}

// A NewTool is a tool to be stored.
type NewTool struct {
	Name          string        `json:"name" schema:"toolName"`
	Description   string        `json:"description,omitempty" schema:"maxLength=4096"`
	ToolType      string        `json:"tool_type" schema:"const=code_runner"` // "code_runner"
	Configuration Configuration `json:"configuration"`
	// review: each run waits until a person approves it. deny: each run is refused. Default: allow.
	ApprovalAction string `json:"approval_action,omitempty" schema:"enum=|allow|review|deny"`
}

// NullIsAbsent makes the decoder take null for any field that is left out, at any depth.
func (NewTool) NullIsAbsent() (depth int) { return math.MaxInt }

// A ChangeTool asks for a new version of a tool. What is left out stays as it is.
type ChangeTool struct {
	Name *string `json:"name,omitempty" schema:"toolName"` // A tool keeps its name; this may repeat it.
	// May repeat the type that it has.
	ToolType    *string `json:"tool_type,omitempty" schema:"const=code_runner"`
	Description *string `json:"description,omitempty" schema:"maxLength=4096"`
	// The whole configuration; without env_variables, the present ones stay.
	Configuration  *Configuration `json:"configuration,omitempty"`
	ApprovalAction *string        `json:"approval_action,omitempty" schema:"enum=|allow|review|deny"`
}

// NullIsAbsent makes the decoder take null for any field that is left out, at any depth.
func (ChangeTool) NullIsAbsent() (depth int) { return math.MaxInt }

// check returns an error about the first wrong field, which it names by its path, and fills in defaults.
func (t *NewTool) check() error {
	switch {
	case !validToolName(t.Name):
		return proto.Invalid("name", "name: %.80q is not a valid tool name; use 1 to 64 letters, digits, '_' and '-', "+
			"beginning with a letter, and not the form of a tool's ID", t.Name)
	case len(t.Description) > maxDescription || !utf8.ValidString(t.Description):
		return proto.Invalid("description", "description must be text of at most %d bytes", maxDescription)
	case t.ToolType != kindOfTool:
		return proto.Invalid("tool_type", "tool_type: %.40q is not known; write %q", t.ToolType, kindOfTool)
	case !slices.Contains(approvalActions, t.ApprovalAction):
		return proto.Invalid("approval_action", "approval_action: %.40q is not known; use allow, review or deny",
			t.ApprovalAction)
	}
	return checkConfiguration(&t.Configuration)
}

func validToolName(name string) bool {
	return toolName.MatchString(name) && !proto.ValidID(toolPrefix, name)
}

func checkConfiguration(c *Configuration) error {
	c.TimeoutSeconds = cmp.Or(c.TimeoutSeconds, usualTimeout)
	c.Runtime = cmp.Or(c.Runtime, pythonRuntime)
	switch {
	case c.Type != kindOfConfig:
		return proto.Invalid("configuration.type",
			"configuration.type: %.40q is not known; write %q, in exactly this case",
			c.Type, kindOfConfig)
	case c.Runtime != pythonRuntime:
		return proto.Invalid("configuration.runtime",
			"configuration.runtime: %.40q is not known; tools are written in %q",
			c.Runtime, pythonRuntime)
	case strings.TrimSpace(c.Code) == "":
		return proto.Invalid("configuration.code",
			"configuration.code is missing; send Python code that defines run(input)")
	case len(c.Code) > MaxCode:
		return proto.Errorf(proto.TooLarge, "", "configuration.code", "configuration.code has %d bytes; %d is the "+
			"limit; let the code read large data from a file of the run", len(c.Code), MaxCode)
	case strings.ContainsRune(c.Code, 0) || !utf8.ValidString(c.Code):
		return proto.Invalid("configuration.code", "configuration.code must be UTF-8 without NUL bytes")
	case !(c.TimeoutSeconds >= leastTimeout && c.TimeoutSeconds <= maxTimeout): // written so that NaN is refused
		return proto.Invalid("configuration.timeout_seconds", "configuration.timeout_seconds must be from %v to %v",
			leastTimeout, maxTimeout)
	}
	if err := field.Check("configuration.input_schema", c.InputSchema); err != nil {
		return err
	}
	if err := field.Check("configuration.output_schema", c.OutputSchema); err != nil {
		return err
	}
	if len(c.EnvHosts) > 0 && !c.AllowNetwork {
		return proto.Invalid("configuration.env_hosts",
			"configuration.env_hosts needs allow_network: without it the tool "+
				"reaches no host")
	}
	return checkEnv(c.EnvVariables)
}

// checkEnv checks an environment. Its errors contain names only, never values.
func checkEnv(env map[string]string) error {
	const at = "configuration.env_variables"
	if len(env) > maxEnv {
		return proto.Invalid(at, "%s has %d variables; %d is the limit", at, len(env), maxEnv)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch value := env[name]; {
		case !envName.MatchString(name):
			return proto.Invalid(
				at, "%s: %.80q is not a valid variable name; use letters, digits and '_', not beginning "+
					"with a digit", at, name)
		case len(value) > maxEnvValue || strings.ContainsRune(value, 0) || !utf8.ValidString(value):
			return proto.Invalid(at+"."+name, "%s.%s must be text of at most %d bytes without NUL", at, name,
				maxEnvValue)
		}
	}
	return nil
}

// on returns the tool that a change makes of the current version.
func (c ChangeTool) on(r toolRecord, v versionRecord) (NewTool, error) {
	next := NewTool{Name: r.Name, Description: v.Description, ToolType: kindOfTool, Configuration: v.Configuration,
		ApprovalAction: v.ApprovalAction}
	switch {
	case c.Name != nil && *c.Name != r.Name:
		return next, proto.Invalid("name",
			"name: a tool keeps its name, which here is %s; create another tool, or leave "+
				"name out", r.Name)
	case c.ToolType != nil && *c.ToolType != kindOfTool:
		return next, proto.Invalid("tool_type", "tool_type: %.40q is not known; write %q", *c.ToolType, kindOfTool)
	case c == ChangeTool{Name: c.Name, ToolType: c.ToolType}:
		return next, proto.Invalid("", "there is nothing to change; give description, configuration or approval_action")
	}
	if c.Description != nil {
		next.Description = *c.Description
	}
	if c.Configuration != nil {
		next.Configuration = *c.Configuration
	}
	if c.ApprovalAction != nil {
		next.ApprovalAction = *c.ApprovalAction
	}
	return next, next.check()
}

// info is a version in its public form, with notes.
func (r toolRecord) info(v versionRecord, notes ...string) Tool {
	c := v.Configuration
	c.EnvVariables = nil
	names := v.EnvNames
	if names == nil {
		names = []string{}
	}
	return Tool{
		ID: r.ID, Name: r.Name, Description: v.Description, ToolType: kindOfTool, Configuration: c,
		ApprovalAction: v.ApprovalAction, EnvVariableNames: names, Version: v.Version,
		CreatedAt: proto.At(r.Created), UpdatedAt: proto.At(v.Created), Notes: notes,
	}
}

func versionKey(tool string, n int64) string { return fmt.Sprintf("%s/%09d", tool, n) }

func notFound(what, name string) error {
	return proto.Errorf(proto.NotFound, "", proto.Shorten(name, 80), "%s %.80q does not exist; list the %ss to see "+
		"which do", what, name, what)
}

// Package provider holds what the bridge and the providers of tools exchange: tools with their compiled schemas, calls,
// and the allow-list that a container is created with.
//
// A provider is a server, an API client, or a part of the daemon. Package bridge and tools/bridge/remote call this
// package; the sessions of providers are in package bridge.
package provider

import (
	"encoding/json"
	"fmt"
	"regexp"

	"berth/proto"
	"berth/tools/schema"
)

// MaxResult bounds the result of a call, in bytes.
const MaxResult = 4 << 20

// A Tool is a function that code can call.
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// Python gets an async function that takes one dict and returns a string
	Async    bool   `json:"async,omitempty"`
	Approval string `json:"approval,omitempty"` // proto.ApprovalAllow (default) or proto.ApprovalReview
}

// A Call is a call in the form that its provider gets.
type Call struct {
	ID          string          `json:"call_id"`
	Tool        string          `json:"tool"`
	Input       json.RawMessage `json:"input"`
	ContainerID string          `json:"container_id"`
	ExecID      string          `json:"exec_id"`
}

// A Prepared is a tool that can be called, with compiled schemas.
type Prepared struct {
	Tool
	Input, Output *schema.Schema
}

// Prepare checks a tool and compiles its schemas. at names it in errors.
func Prepare(at string, t Tool) (*Prepared, error) {
	if err := checkName(at+".name", t.Name); err != nil {
		return nil, err
	}
	if len(t.Description) > maxDescription {
		return nil, proto.Errorf(proto.TooLarge, "", at+".description", "%s.description has %d bytes; %d is the limit",
			at, len(t.Description), maxDescription)
	}
	if err := checkApproval(at+".approval", t.Approval); err != nil {
		return nil, err
	}
	ready := &Prepared{Tool: t}
	var err error
	if ready.Input, err = schema.Compile(at+".input_schema", t.InputSchema); err != nil {
		return nil, err
	}
	ready.Output, err = schema.Compile(at+".output_schema", t.OutputSchema)
	return ready, err
}

// PrepareAll prepares a list of tools, by name.
func PrepareAll(at string, list []Tool) (map[string]*Prepared, error) {
	if len(list) > MaxTools {
		return nil, proto.Invalid(at, "%d tools are too many; %d is the limit", len(list), MaxTools)
	}
	out := map[string]*Prepared{}
	for i, t := range list {
		here := fmt.Sprintf("%s.%d", at, i)
		ready, err := Prepare(here, t)
		if err != nil {
			return nil, err
		}
		if out[t.Name] != nil {
			return nil, proto.Invalid(here+".name", "%s.name: the tool %s is listed twice; leave one of them out", here,
				t.Name)
		}
		out[t.Name] = ready
	}
	return out, nil
}

// PrepareSpecs is PrepareAll for tools as requests describe them.
func PrepareSpecs(at string, specs []proto.ToolSpec) (map[string]*Prepared, error) {
	list := make([]Tool, len(specs))
	for i, s := range specs {
		list[i] = FromSpec(s)
	}
	return PrepareAll(at, list)
}

// FromSpec returns a tool as a request describes it.
func FromSpec(s proto.ToolSpec) Tool {
	return Tool{Name: s.Name, Description: s.Description, InputSchema: s.InputSchema, OutputSchema: s.OutputSchema}
}

// toolName is the form of a tool's name, of at most proto.MaxToolName bytes. A name has one spelling.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

func checkName(at, name string) error {
	switch {
	case name == proto.ReservedTool:
		return proto.Invalid(at, "%s: %q is reserved: code lists its tools with it; choose another name", at, name)
	case !toolName.MatchString(name):
		return proto.Invalid(at, "%s: %.80q is not a valid tool name; use 1 to %d letters, digits, '_', '-' and '.', "+
			"beginning with a letter, a digit or '_'", at, name, proto.MaxToolName)
	}
	return nil
}

func checkApproval(at, approval string) error {
	switch approval {
	case "", proto.ApprovalAllow, proto.ApprovalReview:
		return nil
	}
	return proto.Invalid(at, "%s: %.40q is not known; use %q or %q", at, approval, proto.ApprovalAllow,
		proto.ApprovalReview)
}

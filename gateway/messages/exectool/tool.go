// Package exectool knows the code execution tool of the Messages dialect: its versions, the plain tools that a model
// gets in place of it, the client tools that code may call, and the IDs of calls. It does not run tools.
package exectool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/gateway/messages/rawjson"
	"berth/proto"
)

// Names of the server tools. Models and clients use the same names.
const (
	ToolBash   = "bash_code_execution"
	ToolEditor = "text_editor_code_execution"
	ToolCode   = "code_execution"
)

// A version is one generation of the code execution tool.
type version struct {
	tools []string // given to the model
	REPL  bool     // code_execution keeps its variables and may call client tools
}

// versions maps the type of a declared tool to its generation.
var versions = map[string]version{
	"code_execution_20250522": {tools: []string{ToolCode}},
	"code_execution_20250825": {tools: []string{ToolBash, ToolEditor}},
	"code_execution_20260120": {tools: []string{ToolBash, ToolEditor, ToolCode}, REPL: true},
	"code_execution_20260521": {tools: []string{ToolBash, ToolEditor, ToolCode}, REPL: true},
}

// CodeToolPrefix begins the type of every code execution tool, including unknown ones.
const CodeToolPrefix = "code_execution_"

// direct is the caller of a tool without allowed_callers: the model itself.
const direct = "direct"

// CallerType is the caller type of calls by code, also for later versions of the tool.
const CallerType = "code_execution_20260120"

// IsOwnTool reports whether a name is one of the server tools.
func IsOwnTool(name string) bool { return name == ToolBash || name == ToolEditor || name == ToolCode }

// MaxRemote is the maximum number of client tools that code may call.
const MaxRemote = 128

// A Check refuses a client tool that code cannot call. field names the tool in the error.
type Check func(field string, tool rawjson.Object) error

// A Toolbox holds the tools of a request.
type Toolbox struct {
	version
	Declared bool              // a code execution tool is among them
	all      []rawjson.Object  // as the client sent them
	Upstream []json.RawMessage // sent to the upstream; nil in place of the code execution tool until describe
	Remote   []rawjson.Object  // client tools that code may call
}

// ReadTools reads the tools of a request. Without a code execution tool, they are sent to the upstream unchanged.
func ReadTools(raw json.RawMessage, check Check) (b Toolbox, err error) {
	if raw == nil || string(raw) == "null" {
		return b, nil
	}
	list, err := rawjson.ParseArray(raw)
	if err != nil {
		return b, proto.Invalid("tools", "tools must be an array of objects")
	}
	b.all = make([]rawjson.Object, len(list))
	for i, raw := range list {
		if b.all[i], err = rawjson.Parse(raw); err != nil {
			return b, proto.Invalid("tools", "tools.%d must be an object", i)
		}
		if err := b.declareTool(i, b.all[i]); err != nil {
			return b, err
		}
	}
	if !b.Declared {
		return b, nil
	}
	for i, o := range b.all {
		if err := b.addTool(i, o, list[i], check); err != nil {
			return b, err
		}
	}
	return b, nil
}

// declareTool records a code execution tool.
func (b *Toolbox) declareTool(i int, o rawjson.Object) error {
	kind := o.Text("type")
	if !strings.HasPrefix(kind, CodeToolPrefix) {
		return nil
	}
	v, ok := versions[kind]
	switch {
	case !ok:
		return proto.Invalid("tools", "tools.%d: type %.80q is not known; use code_execution_20260521 or one of the "+
			"earlier ones", i, kind)
	case b.Declared:
		return proto.Invalid("tools", "tools.%d: a request may have one code execution tool; leave one of them out",
			i)
	case o.Has("name") && o.Text("name") != ToolCode:
		return proto.Invalid("tools", "tools.%d: the name of %s is %q, not %.80q", i, kind, ToolCode, o.Text("name"))
	}
	b.version, b.Declared = v, true
	return nil
}

// addTool adds a tool to those of the upstream, unless only code may call it. The place of the code execution tool
// stays empty until describe.
func (b *Toolbox) addTool(i int, o rawjson.Object, raw json.RawMessage, check Check) error {
	if strings.HasPrefix(o.Text("type"), CodeToolPrefix) {
		b.Upstream = append(b.Upstream, nil)
		return nil
	}
	if name := o.Text("name"); slices.Contains(b.tools, name) {
		return proto.Invalid("tools", "tools.%d: the name %s belongs to the code execution tool; use another", i,
			name)
	}
	callers, err := readCallers(i, o)
	if err != nil {
		return err
	}
	byCode := slices.ContainsFunc(callers, func(c string) bool { return c != direct })
	if byCode {
		if err := b.addRemote(i, o, check); err != nil {
			return err
		}
	}
	if !byCode || slices.Contains(callers, direct) {
		if o.Get("allowed_callers") != nil {
			raw = o.Without("allowed_callers").Raw() // the upstream does not know calls by code
		}
		b.Upstream = append(b.Upstream, raw)
	}
	return nil
}

// readCallers returns the allowed callers of a tool.
func readCallers(i int, o rawjson.Object) (callers []string, err error) {
	if !o.Has("allowed_callers") {
		return []string{direct}, nil
	}
	if json.Unmarshal(o.Get("allowed_callers"), &callers) != nil || len(callers) == 0 {
		return nil, proto.Invalid("tools", "tools.%d.allowed_callers must be a list of callers, such as [\"direct\"]",
			i)
	}
	for _, c := range callers {
		if _, ok := versions[c]; !ok && c != direct {
			return nil, proto.Invalid("tools", "tools.%d.allowed_callers: %.80q is not known; use \"direct\" or the "+
				"type of the code execution tool", i, c)
		}
	}
	return callers, nil
}

// addRemote adds a client tool that code may call.
func (b *Toolbox) addRemote(i int, o rawjson.Object, check Check) error {
	name := o.Text("name")
	switch {
	case !b.REPL:
		return proto.Invalid(
			"tools", "tools.%d.allowed_callers: code can call tools with code_execution_20260120 or "+
				"later; declare that, or leave allowed_callers out", i)
	case o.Text("type") != "" && o.Text("type") != "custom":
		return proto.Invalid("tools", "tools.%d.allowed_callers: code can call tools with an input_schema of their "+
			"own, not %.80s", i, o.Text("type"))
	case string(o.Get("strict")) == "true":
		return proto.Invalid(
			"tools", "tools.%d: strict is not supported for a tool that code may call; leave one of "+
				"strict and allowed_callers out", i)
	case name == "":
		return proto.Invalid("tools", "tools.%d has no name", i)
	case len(b.Remote) == MaxRemote:
		return proto.Invalid("tools", "tools.%d: code may call %d tools at most; leave allowed_callers out of the "+
			"others", i, MaxRemote)
	}
	// checked first: it limits the size of the schema
	if err := check(fmt.Sprintf("tools.%d", i), o); err != nil {
		return err
	}
	if err := checkRefs(o.Get("input_schema")); err != nil {
		return proto.Invalid("tools", "tools.%d.input_schema: %v", i, err)
	}
	if slices.ContainsFunc(b.Remote, func(r rawjson.Object) bool { return r.Text("name") == name }) {
		return proto.Invalid("tools", "tools.%d: there is a tool %s already; leave one of them out", i, name)
	}
	b.Remote = append(b.Remote, o)
	return nil
}

// Describe replaces the code execution tool by plain tools. The last of them gets its cache_control, and the first
// one the description of the skills.
func (b *Toolbox) Describe(skills string) {
	at := slices.IndexFunc(b.Upstream, func(raw json.RawMessage) bool { return raw == nil })
	if at < 0 {
		return
	}
	declared := b.all[slices.IndexFunc(b.all, func(o rawjson.Object) bool {
		return strings.HasPrefix(o.Text("type"), CodeToolPrefix)
	})]
	var own []json.RawMessage
	for i, name := range b.tools {
		text := b.description(name)
		if i == 0 {
			text += skills
		}
		o := rawjson.Object{}.With("name", name).With("description", text).With("input_schema", schemas[name])
		if string(declared.Get("defer_loading")) == "true" {
			o = o.With("defer_loading", true)
		}
		if cache := declared.Get("cache_control"); i == len(b.tools)-1 && declared.Has("cache_control") {
			o = o.With("cache_control", cache)
		}
		own = append(own, o.Raw())
	}
	b.Upstream = slices.Replace(b.Upstream, at, at+1, own...)
}

// UpstreamChoice returns the tool_choice for the upstream. A choice that forces a tool applies only to the first
// round: in later rounds it would force the tool again and again.
func (b *Toolbox) UpstreamChoice(raw json.RawMessage, first bool) json.RawMessage {
	o, err := rawjson.Parse(raw)
	if err != nil {
		return raw
	}
	kind := o.Text("type")
	switch {
	case !first && (kind == "any" || kind == "tool"):
		return o.Without("name").With("type", "auto").Raw()
	case kind == "tool" && o.Text("name") == ToolCode && !slices.Contains(b.tools, ToolCode):
		return o.With("name", b.tools[0]).Raw()
	}
	return raw
}

// CheckChoice refuses a tool_choice that conflicts with tools that code may call.
func (b *Toolbox) CheckChoice(raw json.RawMessage) error {
	o, err := rawjson.Parse(raw)
	if err != nil || len(b.Remote) == 0 {
		return nil
	}
	if string(o.Get("disable_parallel_tool_use")) == "true" {
		return proto.Invalid("tool_choice",
			"tool_choice: disable_parallel_tool_use is not supported with tools that code "+
				"may call; leave it out")
	}
	forced := slices.ContainsFunc(b.Remote, func(r rawjson.Object) bool { return r.Text("name") == o.Text("name") })
	if o.Text("type") == "tool" && forced {
		return proto.Invalid("tool_choice", "tool_choice: %.80q may be called by code, so it cannot be forced; let "+
			"the model choose", o.Text("name"))
	}
	return nil
}

// ClientBlock converts an upstream's block to what the client sees: calls of plain tools become calls of server
// tools.
func (b *Toolbox) ClientBlock(o rawjson.Object) rawjson.Object {
	if o.Text("type") != "tool_use" || !slices.Contains(b.tools, o.Text("name")) {
		return o
	}
	caller := rawjson.Object{}.With("type", direct)
	return o.With("type", "server_tool_use").With("id", serverID(o.Text("id"))).With("caller", caller.Raw())
}

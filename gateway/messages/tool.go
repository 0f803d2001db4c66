// Package exectool knows the code execution tool of the Messages dialect: its versions, the plain tools that a model
// gets in place of it, the client tools that code may call, and the IDs of calls. It does not run tools.
package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/gateway"
)

// Names of the server tools. Models and clients use the same names.
const (
	toolBash   = "bash_code_execution"
	toolEditor = "text_editor_code_execution"
	toolCode   = "code_execution"
)

// A version is one generation of the code execution tool.
type version struct {
	tools []string // given to the model
	repl  bool     // code_execution keeps its variables and may call client tools
}

// versions maps the type of a declared tool to its generation.
var versions = map[string]version{
	"code_execution_20250522": {tools: []string{toolCode}},
	"code_execution_20250825": {tools: []string{toolBash, toolEditor}},
	"code_execution_20260120": {tools: []string{toolBash, toolEditor, toolCode}, repl: true},
	"code_execution_20260521": {tools: []string{toolBash, toolEditor, toolCode}, repl: true},
}

// codeToolPrefix begins the type of every code execution tool, including unknown ones.
const codeToolPrefix = "code_execution_"

// direct is the caller of a tool without allowed_callers: the model itself.
const direct = "direct"

// callerType is the caller type of calls by code, also for later versions of the tool.
const callerType = "code_execution_20260120"

// isOwnTool reports whether a name is one of the server tools.
func isOwnTool(name string) bool { return name == toolBash || name == toolEditor || name == toolCode }

// A ToolChecker refuses tools that code cannot call. field names the tool in the error.
type ToolChecker interface {
	CheckTool(field string, t gateway.ClientTool) error
}

// A toolbox holds the tools of a request.
type toolbox struct {
	version
	declared bool              // a code execution tool is among them
	all      []object          // as the client sent them
	upstream []json.RawMessage // sent to the upstream; nil in place of the code execution tool until describe
	remote   []object          // client tools that code may call
}

// readTools reads the tools of a request. Without a code execution tool, they are sent to the upstream unchanged.
func readTools(raw json.RawMessage, check ToolChecker) (b toolbox, err error) {
	if raw == nil || string(raw) == "null" {
		return b, nil
	}
	list, err := parseArray(raw)
	if err != nil {
		return b, invalid("tools", "tools must be an array of objects")
	}
	b.all = make([]object, len(list))
	for i, raw := range list {
		if b.all[i], err = parseObject(raw); err != nil {
			return b, invalid("tools", "tools.%d must be an object", i)
		}
		if err := b.declareTool(i, b.all[i]); err != nil {
			return b, err
		}
	}
	if !b.declared {
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
func (b *toolbox) declareTool(i int, o object) error {
	kind := o.text("type")
	if !strings.HasPrefix(kind, codeToolPrefix) {
		return nil
	}
	v, ok := versions[kind]
	switch {
	case !ok:
		return invalid("tools", "tools.%d: type %.80q is not known; use code_execution_20260521 or one of the "+
			"earlier ones", i, kind)
	case b.declared:
		return invalid("tools", "tools.%d: a request may have one code execution tool; leave one of them out", i)
	case o.has("name") && o.text("name") != toolCode:
		return invalid("tools", "tools.%d: the name of %s is %q, not %.80q", i, kind, toolCode, o.text("name"))
	}
	b.version, b.declared = v, true
	return nil
}

// addTool adds a tool to those of the upstream, unless only code may call it. The place of the code execution tool
// stays empty until describe.
func (b *toolbox) addTool(i int, o object, raw json.RawMessage, check ToolChecker) error {
	if strings.HasPrefix(o.text("type"), codeToolPrefix) {
		b.upstream = append(b.upstream, nil)
		return nil
	}
	if name := o.text("name"); slices.Contains(b.tools, name) {
		return invalid("tools", "tools.%d: the name %s belongs to the code execution tool; use another", i, name)
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
		if o.get("allowed_callers") != nil {
			raw = o.without("allowed_callers").raw() // the upstream does not know calls by code
		}
		b.upstream = append(b.upstream, raw)
	}
	return nil
}

// readCallers returns the allowed callers of a tool.
func readCallers(i int, o object) (callers []string, err error) {
	if !o.has("allowed_callers") {
		return []string{direct}, nil
	}
	if json.Unmarshal(o.get("allowed_callers"), &callers) != nil || len(callers) == 0 {
		return nil, invalid("tools", "tools.%d.allowed_callers must be a list of callers, such as [\"direct\"]", i)
	}
	for _, c := range callers {
		if _, ok := versions[c]; !ok && c != direct {
			return nil, invalid("tools", "tools.%d.allowed_callers: %.80q is not known; use \"direct\" or the type "+
				"of the code execution tool", i, c)
		}
	}
	return callers, nil
}

// addRemote adds a client tool that code may call.
func (b *toolbox) addRemote(i int, o object, check ToolChecker) error {
	name := o.text("name")
	switch {
	case !b.repl:
		return invalid("tools", "tools.%d.allowed_callers: code can call tools with code_execution_20260120 or "+
			"later; declare that, or leave allowed_callers out", i)
	case o.text("type") != "" && o.text("type") != "custom":
		return invalid(
			"tools", "tools.%d.allowed_callers: code can call tools with an input_schema of their own, not %.80s", i,
			o.text("type"))
	case string(o.get("strict")) == "true":
		return invalid("tools", "tools.%d: strict is not supported for a tool that code may call; leave one of "+
			"strict and allowed_callers out", i)
	case name == "":
		return invalid("tools", "tools.%d has no name", i)
	case len(b.remote) == gateway.MaxClientTools:
		return invalid("tools", "tools.%d: code may call %d tools at most; leave allowed_callers out of the others", i,
			gateway.MaxClientTools)
	}
	// checked first: it limits the size of the schema
	if err := check.CheckTool(fmt.Sprintf("tools.%d", i), clientTool(o)); err != nil {
		return err
	}
	if err := checkRefs(o.get("input_schema")); err != nil {
		return invalid("tools", "tools.%d.input_schema: %v", i, err)
	}
	if slices.ContainsFunc(b.remote, func(r object) bool { return r.text("name") == name }) {
		return invalid("tools", "tools.%d: there is a tool %s already; leave one of them out", i, name)
	}
	b.remote = append(b.remote, o)
	return nil
}

// describe replaces the code execution tool by plain tools. The last of them gets its cache_control, and the first
// one the description of the skills.
func (b *toolbox) describe(skills string) {
	at := slices.IndexFunc(b.upstream, func(raw json.RawMessage) bool { return raw == nil })
	if at < 0 {
		return
	}
	declared := b.all[slices.IndexFunc(b.all, func(o object) bool {
		return strings.HasPrefix(o.text("type"), codeToolPrefix)
	})]
	var own []json.RawMessage
	for i, name := range b.tools {
		text := b.description(name)
		if i == 0 {
			text += skills
		}
		o := object{}.with("name", name).with("description", text).with("input_schema", schemas[name])
		if string(declared.get("defer_loading")) == "true" {
			o = o.with("defer_loading", true)
		}
		if cache := declared.get("cache_control"); i == len(b.tools)-1 && declared.has("cache_control") {
			o = o.with("cache_control", cache)
		}
		own = append(own, o.raw())
	}
	b.upstream = slices.Replace(b.upstream, at, at+1, own...)
}

// upstreamChoice returns the tool_choice for the upstream. A choice that forces a tool applies only to the first
// round: in later rounds it would force the tool again and again.
func (b *toolbox) upstreamChoice(raw json.RawMessage, first bool) json.RawMessage {
	o, err := parseObject(raw)
	if err != nil {
		return raw
	}
	kind := o.text("type")
	switch {
	case !first && (kind == "any" || kind == "tool"):
		return o.without("name").with("type", "auto").raw()
	case kind == "tool" && o.text("name") == toolCode && !slices.Contains(b.tools, toolCode):
		return o.with("name", b.tools[0]).raw()
	}
	return raw
}

// checkChoice refuses a tool_choice that conflicts with tools that code may call.
func (b *toolbox) checkChoice(raw json.RawMessage) error {
	o, err := parseObject(raw)
	if err != nil || len(b.remote) == 0 {
		return nil
	}
	if string(o.get("disable_parallel_tool_use")) == "true" {
		return invalid("tool_choice", "tool_choice: disable_parallel_tool_use is not supported with tools that code "+
			"may call; leave it out")
	}
	forced := slices.ContainsFunc(b.remote, func(r object) bool { return r.text("name") == o.text("name") })
	if o.text("type") == "tool" && forced {
		return invalid("tool_choice", "tool_choice: %.80q may be called by code, so it cannot be forced; let the "+
			"model choose", o.text("name"))
	}
	return nil
}

// clientTool returns a client tool in the gateway's form.
func clientTool(o object) gateway.ClientTool {
	return gateway.ClientTool{Name: o.text("name"), Description: o.text("description"),
		InputSchema: o.get("input_schema")}
}

// clientBlock converts an upstream's block to what the client sees: calls of plain tools become calls of server
// tools.
func (b *toolbox) clientBlock(o object) object {
	if o.text("type") != "tool_use" || !slices.Contains(b.tools, o.text("name")) {
		return o
	}
	caller := object{}.with("type", direct)
	return o.with("type", "server_tool_use").with("id", serverID(o.text("id"))).with("caller", caller.raw())
}

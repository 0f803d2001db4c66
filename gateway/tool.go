package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/tools/bridge"
)

// The server tools that models call, by the names that clients see too.
const (
	toolBash   = "bash_code_execution"
	toolEditor = "text_editor_code_execution"
	toolCode   = "code_execution"
)

// A version is one generation of the code execution tool.
type version struct {
	tools []string // that the model gets for it
	repl  bool     // whether code_execution keeps its variables, and may call the client's tools
}

// versions are the generations by the type that declares them.
var versions = map[string]version{
	"code_execution_20250522": {tools: []string{toolCode}},
	"code_execution_20250825": {tools: []string{toolBash, toolEditor}},
	"code_execution_20260120": {tools: []string{toolBash, toolEditor, toolCode}, repl: true},
	"code_execution_20260521": {tools: []string{toolBash, toolEditor, toolCode}, repl: true},
}

// codeToolPrefix begins the type of every code execution tool, those too that are not known here.
const codeToolPrefix = "code_execution_"

// direct is the caller that every tool has unless it says otherwise: the model.
const direct = "direct"

// ownTool reports whether a name is one of the server's tools.
func ownTool(name string) bool { return name == toolBash || name == toolEditor || name == toolCode }

// A toolbox is what a request's tools come to.
type toolbox struct {
	version
	declared bool              // the code execution tool is among them
	all      []object          // as they came
	upstream []json.RawMessage // as the upstream gets them
	remote   []object          // the client's that code may call
}

// readTools reads the tools of a request, and puts plain ones in the place of the code execution tool. Without that
// nothing is changed.
func readTools(raw json.RawMessage) (b toolbox, err error) {
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
		if err := b.declare(i, b.all[i]); err != nil {
			return b, err
		}
	}
	if !b.declared {
		return b, nil
	}
	for i, o := range b.all {
		if err := b.add(i, o, list[i]); err != nil {
			return b, err
		}
	}
	return b, nil
}

// declare notes a code execution tool.
func (b *toolbox) declare(i int, o object) error {
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

// add takes a tool over, if the upstream is to know of it. The place of the code execution tool stays empty until
// describe.
func (b *toolbox) add(i int, o object, raw json.RawMessage) error {
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
		if err := b.addRemote(i, o); err != nil {
			return err
		}
	}
	if !byCode || slices.Contains(callers, direct) {
		if o.get("allowed_callers") != nil {
			raw = o.without("allowed_callers").raw() // an upstream has no code that could call
		}
		b.upstream = append(b.upstream, raw)
	}
	return nil
}

// readCallers are who may call a tool.
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

// addRemote takes a tool that code may call.
func (b *toolbox) addRemote(i int, o object) error {
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
	case len(b.remote) == bridge.MaxTools:
		return invalid("tools", "tools.%d: code may call %d tools at most; leave allowed_callers out of the others", i,
			bridge.MaxTools)
	}
	if err := bridge.Check(fmt.Sprintf("tools.%d", i), offered(o)); err != nil { // first, since it bounds the schema
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

// describe puts the plain tools in the place of the code execution tool. What that said of caching goes to the last
// of them, what is said of skills to the first.
func (b *toolbox) describe(skills string) {
	at := slices.IndexFunc(b.upstream, func(raw json.RawMessage) bool { return raw == nil })
	if at < 0 {
		return
	}
	declared := b.all[slices.IndexFunc(b.all, func(o object) bool {
		return strings.HasPrefix(o.text("type"),
			codeToolPrefix)
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

// choose is the tool_choice of a request as the upstream gets it. What forces a tool does so in the first round
// alone: in the later ones it would be called again and again.
func (b *toolbox) choose(raw json.RawMessage, first bool) json.RawMessage {
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

// checkChoice refuses what does not go together with tools that code may call.
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

package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/gateway/upstream/answer"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

// Encode converts a Messages request to a chat completions request for a model, once. After it, the Request keeps no
// part of the body, since an answer may take minutes. official means that the upstream is the official OpenAI service.
// Its newer models refuse max_tokens; all other servers accept it.
func (r *Request) Encode(model string, official bool) ([]byte, error) {
	p := openai.ChatCompletionNewParams{Model: model}
	if r.Temperature != nil {
		p.Temperature = param.NewOpt(*r.Temperature)
	}
	if r.TopP != nil {
		p.TopP = param.NewOpt(*r.TopP)
	}
	if official {
		p.MaxCompletionTokens = param.NewOpt(r.MaxTokens)
	} else {
		p.MaxTokens = param.NewOpt(r.MaxTokens)
	}
	if len(r.StopSequences) > 0 {
		p.Stop.OfStringArray = r.StopSequences
	}
	said, err := r.appendMessages(append(make([]byte, 0, r.size+r.size/8+512), `{"messages":`...))
	if err != nil {
		return nil, err
	}
	if p.Tools, err = r.encodeTools(); err != nil {
		return nil, err
	}
	if err = encodeChoice(&p, r.ToolChoice); err != nil {
		return nil, err
	}
	if err = encodeFormat(&p, r); err != nil {
		return nil, err
	}
	if r.Stream {
		p.StreamOptions.IncludeUsage = param.NewOpt(true)
	}
	text, err := json.Marshal(p) // without the messages, which are long
	if err != nil {
		return nil, err
	}
	if said = append(said, ','); r.Stream { // the client of the openai library would add this member
		said = append(said, `"stream":true,`...)
	}
	r.turns, r.system, r.changes = nil, nil, nil
	return append(said, text[1:]...), nil
}

// encodeFormat converts the JSON schema of the answer.
func encodeFormat(p *openai.ChatCompletionNewParams, r *Request) error {
	name, f := "output_format", r.OutputFormat
	if c := r.OutputConfig; c != nil && c.Format != nil {
		name, f = "output_config.format", c.Format
	}
	if f == nil {
		return nil
	}
	if f.Type != "json_schema" {
		return cannotEncode("%s, of the type %s", name, answer.Short(f.Type))
	}
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "answer", Strict: param.NewOpt(true),
			Schema: json.RawMessage(f.Schema)},
	}
	return nil
}

// toolSearch begins the types of the tools that find deferred tools. They are dropped: the model gets all tools.
const toolSearch = "tool_search_tool_"

// encodeTools converts the tools that the model has after all messages, which may add and remove some.
func (r *Request) encodeTools() (out []openai.ChatCompletionToolUnionParam, err error) {
	list, err := r.currentTools()
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		if strings.HasPrefix(t.Type, toolSearch) {
			r.ignore("tools." + t.Name)
			continue
		}
		f, err := r.encodeTool(t)
		if err != nil {
			return nil, err
		}
		out = append(out, openai.ChatCompletionFunctionTool(f))
	}
	return out, nil
}

// A namedTool is a tool and where the request has it.
type namedTool struct {
	*tool
	where string
}

// currentTools applies the blocks tool_addition and tool_removal to the tools.
func (r *Request) currentTools() (list []namedTool, err error) {
	for i := range r.Tools {
		list = append(list, namedTool{&r.Tools[i], fmt.Sprintf("tools.%d", i)})
	}
	removed := map[string]namedTool{}
	for _, b := range r.changes {
		c := b.toolChange()
		if c == nil || c.Type != "tool_reference" && c.Definition == nil {
			return nil, cannotEncode("%s", b.where)
		}
		name, added := c.Name, removed[c.Name]
		if c.Definition != nil {
			name, added = c.Definition.Name, namedTool{c.Definition, b.where + ".definition"}
		}
		at := slices.IndexFunc(list, func(t namedTool) bool { return t.Name == name })
		switch {
		case b.kind == "tool_removal" && at >= 0:
			removed[name] = list[at]
			list = slices.Delete(list, at, at+1)
		case b.kind == "tool_addition" && at >= 0 && c.Definition != nil:
			list[at] = added
		case b.kind == "tool_addition" && at < 0 && added.tool != nil:
			list = append(list, added)
		}
	}
	return list, nil
}

// encodeTool converts a tool of the client.
func (r *Request) encodeTool(t namedTool) (f shared.FunctionDefinitionParam, err error) {
	switch {
	case t.Type != "" && t.Type != "custom":
		return f, cannotEncode("%s, of the type %s", t.where, answer.Short(t.Type))
	case len(t.AllowedCallers) > 0 && !slices.Contains(t.AllowedCallers, "direct"):
		return f, cannotEncode("%s.allowed_callers", t.where)
	case t.Name == "":
		return f, fmt.Errorf("%s.name: it is missing", t.where)
	}
	if slices.ContainsFunc(t.AllowedCallers, func(c string) bool { return c != "direct" }) {
		r.ignore("tools.allowed_callers")
	}
	r.ignoreAll("tools.", t.Others)
	f = shared.FunctionDefinitionParam{Name: t.Name, Parameters: shared.FunctionParameters{}}
	for name, value := range t.InputSchema {
		f.Parameters[name] = json.RawMessage(value)
	}
	if t.Description != "" {
		f.Description = param.NewOpt(t.Description)
	}
	if t.Strict != nil {
		f.Strict = param.NewOpt(*t.Strict)
	}
	return f, nil
}

// choices maps values of tool_choice from Messages to chat completions.
var choices = map[string]string{"auto": "auto", "any": "required", "none": "none"}

func encodeChoice(p *openai.ChatCompletionNewParams, c *toolChoice) error {
	if c == nil {
		return nil
	}
	switch word := choices[c.Type]; {
	case word != "":
		p.ToolChoice.OfAuto = param.NewOpt(word)
	case c.Type == "tool":
		p.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{
			Name: c.Name})
	default:
		return fmt.Errorf("tool_choice.type: %q is not known; there are auto, any, tool and none", answer.Short(c.Type))
	}
	if c.DisableParallel {
		p.ParallelToolCalls = param.NewOpt(false)
	}
	return nil
}

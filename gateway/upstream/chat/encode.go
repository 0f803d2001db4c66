package chat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/gateway/upstream/answer"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

// Encode converts a Messages request to a chat completions request for a model. official means that the upstream is
// the official OpenAI service. Its newer models refuse max_tokens; all other servers accept it.
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
	var err error
	if p.Messages, err = r.encodeMessages(); err != nil {
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
	text, err := json.Marshal(p)
	if err == nil && r.Stream { // the client of the openai library would add this member
		text = slices.Concat([]byte(`{"stream":true,`), text[1:])
	}
	return text, err
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
	for i, m := range r.Messages {
		for k, b := range m.Content {
			if b.Type != "tool_addition" && b.Type != "tool_removal" {
				continue
			}
			where := fmt.Sprintf("messages.%d.content.%d.tool", i, k)
			if b.Tool == nil || b.Tool.Type != "tool_reference" && b.Tool.Definition == nil {
				return nil, cannotEncode("%s", where)
			}
			name, added := b.Tool.Name, removed[b.Tool.Name]
			if b.Tool.Definition != nil {
				name, added = b.Tool.Definition.Name, namedTool{b.Tool.Definition, where + ".definition"}
			}
			at := slices.IndexFunc(list, func(t namedTool) bool { return t.Name == name })
			switch {
			case b.Type == "tool_removal" && at >= 0:
				removed[name] = list[at]
				list = slices.Delete(list, at, at+1)
			case b.Type == "tool_addition" && at >= 0 && b.Tool.Definition != nil:
				list[at] = added
			case b.Type == "tool_addition" && at < 0 && added.tool != nil:
				list = append(list, added)
			}
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

// encodeMessages converts the system text and all messages.
func (r *Request) encodeMessages() (out []openai.ChatCompletionMessageParamUnion, err error) {
	if len(r.System) > 0 {
		text, err := texts("system", r.System)
		if err != nil {
			return nil, err
		}
		out = append(out, openai.SystemMessage(text))
	}
	for i, m := range r.Messages {
		where := fmt.Sprintf("messages.%d", i)
		var said []openai.ChatCompletionMessageParamUnion
		switch m.Role {
		case "user":
			said, err = r.encodeUser(where, m.Content)
		case "assistant":
			said, err = r.encodeAssistant(where, m.Content)
		case "system":
			said, err = r.encodeSystem(where, i)
		default:
			err = fmt.Errorf("%s.role: it is %q; there are user, assistant and system", where, answer.Short(m.Role))
		}
		if err != nil {
			return nil, err
		}
		out = append(out, said...)
	}
	if r.Messages[len(r.Messages)-1].Role == "assistant" {
		return nil, cannotEncode("messages.%d, the beginning of an answer that is to be continued", len(r.Messages)-1)
	}
	return out, nil
}

// encodeSystem converts a system message in the middle of the conversation. It drops one that a later user message
// clears, and what remains without text: changes of tools are applied to the tools, and settings have no equivalent.
func (r *Request) encodeSystem(where string, i int) (out []openai.ChatCompletionMessageParamUnion, err error) {
	m := r.Messages[i]
	if m.ClearAt == "next_user_message" &&
		slices.ContainsFunc(r.Messages[i+1:], func(later turn) bool { return later.Role == "user" }) {
		return nil, nil
	}
	r.ignoreAll("messages.output_config.", m.OutputConfig)
	text, err := texts(where, slices.DeleteFunc(slices.Clone(m.Content), func(b block) bool {
		return b.Type == "tool_addition" || b.Type == "tool_removal"
	}))
	if err == nil && text != "" {
		out = append(out, openai.SystemMessage(text))
	}
	return out, err
}

// texts joins text blocks. It refuses blocks of any other type.
func texts(where string, list content) (string, error) {
	var parts []string
	for i, b := range list {
		if b.Type != "text" {
			return "", cannotEncode("%s.content.%d, of the type %s", where, i, answer.Short(b.Type))
		}
		parts = append(parts, b.Text)
	}
	return strings.Join(parts, "\n\n"), nil
}

// encodeUser converts a user message: first each tool result as a message of its own, then all other blocks as one
// message. A tool message can hold text only, so images of results go into that last message.
func (r *Request) encodeUser(where string, list content) (out []openai.ChatCompletionMessageParamUnion, err error) {
	var rest []openai.ChatCompletionContentPartUnionParam
	for i, b := range list {
		at := fmt.Sprintf("%s.content.%d", where, i)
		if b.Type == "tool_result" {
			text, shown, err := r.encodeResult(at, b)
			if err != nil {
				return nil, err
			}
			out, rest = append(out, openai.ToolMessage(text, b.ToolUseID)), append(rest, shown...)
			continue
		}
		part, err := r.encodePart(at, b)
		if err != nil {
			return nil, err
		}
		rest = append(rest, part)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s.content: it is empty", where)
	}
	if len(rest) == 0 {
		return out, nil
	}
	var plain []string
	for _, p := range rest {
		if p.OfText == nil {
			return append(out, openai.UserMessage(rest)), nil
		}
		plain = append(plain, p.OfText.Text)
	}
	// The content of a message with text only is a string: not all servers accept lists.
	return append(out, openai.UserMessage(strings.Join(plain, "\n\n"))), nil
}

// encodeResult returns the text of a tool result, and its images with a note that says which result they belong to.
func (r *Request) encodeResult(where string, b block) (text string,
	shown []openai.ChatCompletionContentPartUnionParam, err error) {
	var parts []string
	for i, inner := range b.Content {
		at := fmt.Sprintf("%s.content.%d", where, i)
		if inner.Type == "tool_reference" { // the model has all tools from the beginning
			parts = append(parts, "The tool "+inner.ToolName+" can be called now.")
			continue
		}
		part, err := r.encodePart(at, inner)
		if err != nil {
			return "", nil, err
		}
		if part.OfText != nil && inner.Type != "document" {
			parts = append(parts, part.OfText.Text)
			continue
		}
		parts = append(parts, "("+inner.Type+": see below)")
		shown = append(shown, openai.TextContentPart("The "+inner.Type+" in the result of the tool call "+b.ToolUseID+
			":"), part)
	}
	text = strings.Join(parts, "\n")
	if b.IsError {
		text = strings.TrimSuffix("Error: "+text, ": ")
	}
	return text, shown, nil
}

// encodePart converts a block of a user message that is not a tool result.
func (r *Request) encodePart(where string, b block) (part openai.ChatCompletionContentPartUnionParam, err error) {
	s, text := b.Source, ""
	if enabled := (struct{ Enabled bool }{}); json.Unmarshal(b.Citations, &enabled) == nil && enabled.Enabled {
		r.ignore("messages.citations")
	}
	switch strings.TrimSuffix(b.Type+" "+s.Type, " ") {
	case "text":
		return openai.TextContentPart(b.Text), nil
	case "image base64", "image url":
		url := s.URL
		if s.Type == "base64" {
			url = "data:" + s.MediaType + ";base64," + s.Data
		}
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}), nil
	case "document base64":
		if b.Context != "" {
			r.ignore("messages.context")
		}
		return openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
			Filename: param.NewOpt(cmp.Or(b.Title, "document.pdf")),
			FileData: param.NewOpt("data:" + s.MediaType + ";base64," + s.Data),
		}), nil
	case "document text":
		text = s.Data
	case "document content":
		text, err = texts(where+".source", s.Content)
	case "search_result":
		text, err = texts(where, b.Content)
	default:
		if s.Type == "" {
			return part, cannotEncode("%s, of the type %s", where, answer.Short(b.Type))
		}
		return part, cannotEncode("%s, of the type %s with a source of the type %s", where, answer.Short(b.Type),
			answer.Short(s.Type))
	}
	var parts []string
	for _, p := range []string{b.Title, s.Name, b.Context, text} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return openai.TextContentPart(strings.Join(parts, "\n\n")), err
}

// encodeAssistant converts an assistant message to one message. It drops thinking blocks: chat completions have no
// field for them that all servers accept. It also drops searches for tools, and the marks of fallbacks.
func (r *Request) encodeAssistant(where string, list content) ([]openai.ChatCompletionMessageParamUnion, error) {
	var m openai.ChatCompletionAssistantMessageParam
	var said []string
	for i, b := range list {
		switch {
		case b.Type == "text":
			said = append(said, b.Text)
		case b.Type == "compaction" && len(b.Content) > 0: // the summary of earlier messages
			said = append(said, b.Content[0].Text)
		case b.Type == "thinking", b.Type == "redacted_thinking", b.Type == "fallback",
			b.Type == "server_tool_use" && strings.HasPrefix(b.Name, toolSearch),
			b.Type == "tool_search_tool_result":
		case b.Type == "tool_use":
			m.ToolCalls = append(m.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
					ID: b.ID, Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: b.Name,
						Arguments: cmp.Or(string(b.Input), "{}")},
				}})
		default:
			return nil, cannotEncode("%s.content.%d, of the type %s", where, i, answer.Short(b.Type))
		}
	}
	m.Content.OfString = param.NewOpt(strings.Join(said, "\n\n")) // some servers require content beside calls, too
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &m}}, nil
}

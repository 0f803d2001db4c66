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
	if p.Messages, err = encodeMessages(r); err != nil {
		return nil, err
	}
	if p.Tools, err = encodeTools(r.Tools); err != nil {
		return nil, err
	}
	if err = encodeChoice(&p, r.ToolChoice); err != nil {
		return nil, err
	}
	if c := r.OutputConfig; c != nil && c.Format != nil {
		if c.Format.Type != "json_schema" {
			return nil, cannotEncode("output_config.format, of the type %s", answer.Short(c.Format.Type))
		}
		p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "answer", Strict: param.NewOpt(true),
				Schema: json.RawMessage(c.Format.Schema)},
		}
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

func encodeTools(list []tool) (out []openai.ChatCompletionToolUnionParam, err error) {
	for i, t := range list {
		switch {
		case t.Type != "" && t.Type != "custom":
			return nil, cannotEncode("tools.%d, of the type %s", i, answer.Short(t.Type))
		case t.DeferLoading:
			return nil, cannotEncode("tools.%d.defer_loading", i)
		case slices.ContainsFunc(t.AllowedCallers, func(c string) bool { return c != "direct" }):
			return nil, cannotEncode("tools.%d.allowed_callers", i)
		case t.Name == "":
			return nil, fmt.Errorf("tools.%d.name: it is missing", i)
		}
		f := shared.FunctionDefinitionParam{Name: t.Name, Parameters: shared.FunctionParameters{}}
		for name, value := range t.InputSchema {
			f.Parameters[name] = json.RawMessage(value)
		}
		if t.Description != "" {
			f.Description = param.NewOpt(t.Description)
		}
		if t.Strict != nil {
			f.Strict = param.NewOpt(*t.Strict)
		}
		out = append(out, openai.ChatCompletionFunctionTool(f))
	}
	return out, nil
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
func encodeMessages(r *Request) (out []openai.ChatCompletionMessageParamUnion, err error) {
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
			said, err = encodeUser(where, m.Content)
		case "assistant":
			said, err = encodeAssistant(where, m.Content)
		case "system":
			var text string
			text, err = texts(where, m.Content)
			said = append(said, openai.SystemMessage(text))
		default:
			err = fmt.Errorf("%s.role: it is %q; there are user and assistant", where, answer.Short(m.Role))
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
func encodeUser(where string, list content) (out []openai.ChatCompletionMessageParamUnion, err error) {
	var rest []openai.ChatCompletionContentPartUnionParam
	for i, b := range list {
		at := fmt.Sprintf("%s.content.%d", where, i)
		if b.Type == "tool_result" {
			text, shown, err := encodeResult(at, b)
			if err != nil {
				return nil, err
			}
			out, rest = append(out, openai.ToolMessage(text, b.ToolUseID)), append(rest, shown...)
			continue
		}
		part, err := encodePart(at, b)
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
func encodeResult(where string, b block) (text string, shown []openai.ChatCompletionContentPartUnionParam, err error) {
	var parts []string
	for i, inner := range b.Content {
		at := fmt.Sprintf("%s.content.%d", where, i)
		if inner.Type == "text" {
			parts = append(parts, inner.Text)
			continue
		}
		if inner.Type != "image" && inner.Type != "document" {
			return "", nil, cannotEncode("%s, of the type %s", at, answer.Short(inner.Type))
		}
		part, err := encodePart(at, inner)
		if err != nil {
			return "", nil, err
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
func encodePart(where string, b block) (part openai.ChatCompletionContentPartUnionParam, err error) {
	if b.Type == "text" {
		return openai.TextContentPart(b.Text), nil
	}
	if b.Source == nil {
		return part, cannotEncode("%s, of the type %s", where, answer.Short(b.Type))
	}
	s, text := b.Source, ""
	switch b.Type + " " + s.Type {
	case "image base64", "image url":
		url := s.URL
		if s.Type == "base64" {
			url = "data:" + s.MediaType + ";base64," + s.Data
		}
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}), nil
	case "document base64":
		return openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
			Filename: param.NewOpt(cmp.Or(b.Title, "document.pdf")),
			FileData: param.NewOpt("data:" + s.MediaType + ";base64," + s.Data),
		}), nil
	case "document text":
		text = s.Data
	case "document content":
		text, err = texts(where+".source", s.Content)
	default:
		return part, cannotEncode("%s, of the type %s with a source of the type %s", where, answer.Short(b.Type),
			answer.Short(s.Type))
	}
	if b.Title != "" {
		text = b.Title + "\n\n" + text
	}
	return openai.TextContentPart(text), err
}

// encodeAssistant converts an assistant message to one message. It drops thinking blocks: chat completions have no
// field for them that all servers accept.
func encodeAssistant(where string, list content) ([]openai.ChatCompletionMessageParamUnion, error) {
	var m openai.ChatCompletionAssistantMessageParam
	var said []string
	for i, b := range list {
		switch b.Type {
		case "text":
			said = append(said, b.Text)
		case "thinking", "redacted_thinking":
		case "tool_use":
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

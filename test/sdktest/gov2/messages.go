package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
)

var talker = anthropic.NewClient(option.WithBaseURL(os.Getenv("BERTH_MESSAGES_URL")), option.WithAPIKey(
	os.Getenv("BERTH_MESSAGES_KEY")))

// params ask a model that has the code execution tool.
func params(model string, more ...anthropic.ToolUnionParam) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: model, MaxTokens: 100, Messages: []anthropic.MessageParam{
			anthropic.NewUserMessage(anthropic.NewTextBlock("go"))},
		Tools: append([]anthropic.ToolUnionParam{
			{OfCodeExecutionTool20260120: &anthropic.CodeExecutionTool20260120Param{}}}, more...),
	}
}

// send asks, and streams the answer or not.
func send(p anthropic.MessageNewParams, streamed bool) (*anthropic.Message, error) {
	if !streamed {
		return talker.Messages.New(ctx, p)
	}
	stream := talker.Messages.NewStreaming(ctx, p)
	defer stream.Close()
	var m anthropic.Message
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			return nil, err
		}
	}
	return &m, stream.Err()
}

// both runs a check with a whole answer and with a stream.
func both(check func(streamed bool) error) func() error {
	return func() error {
		for _, streamed := range []bool{false, true} {
			if err := check(streamed); err != nil {
				return fmt.Errorf("streamed %v: %w", streamed, err)
			}
		}
		return nil
	}
}

// kinds are the types of blocks and of what is in them, as the SDK decodes them.
func kinds(m *anthropic.Message) (list []string) {
	for _, b := range m.Content {
		switch v := b.AsAny().(type) {
		case anthropic.ServerToolUseBlock:
			list = append(list, "use "+string(v.Name))
		case anthropic.BashCodeExecutionToolResultBlock:
			list = append(list, v.Content.Type)
		case anthropic.TextEditorCodeExecutionToolResultBlock:
			list = append(list, v.Content.Type)
		case anthropic.CodeExecutionToolResultBlock:
			list = append(list, v.Content.Type)
		case anthropic.TextBlock:
			list = append(list, "text")
		case anthropic.ToolUseBlock:
			list = append(list, "client "+v.Name)
		default:
			list = append(list, "unknown "+b.Type)
		}
	}
	return list
}

var allKinds = []string{
	"text", "use bash_code_execution", "use bash_code_execution", "use text_editor_code_execution",
	"use text_editor_code_execution", "use text_editor_code_execution",
	"use text_editor_code_execution", "use code_execution", "use code_execution",
	"bash_code_execution_result", "bash_code_execution_tool_result_error", "text_editor_code_execution_create_result",
	"text_editor_code_execution_view_result",
	"text_editor_code_execution_str_replace_result", "text_editor_code_execution_tool_result_error",
	"code_execution_result", "code_execution_tool_result_error", "text",
}

func blocks(streamed bool) error {
	m, err := send(params("blocks"), streamed)
	if err != nil {
		return err
	}
	if got := kinds(m); !slices.Equal(got, allKinds) {
		return fmt.Errorf("%q", got)
	}
	bash := m.Content[9].AsBashCodeExecutionToolResult()
	r := bash.Content.AsResponseBashCodeExecutionResultBlock()
	if bash.ToolUseID != "srvtoolu_1" || r.Stdout != "out\n" || r.Stderr != "err\n" || r.ReturnCode != 3 ||
		len(r.Content) != 1 || !strings.HasPrefix(r.Content[0].FileID, "file_") {
		return fmt.Errorf("%s", m.Content[9].RawJSON())
	}
	if m.StopReason != "stop_sequence" || m.StopSequence != "END" || !strings.HasPrefix(m.Container.ID, "container_") ||
		m.Container.ExpiresAt.IsZero() {
		return fmt.Errorf("%s", m.RawJSON())
	}
	if m.Usage.InputTokens != 17 || m.Usage.OutputTokens != 8 || m.Usage.CacheReadInputTokens != 2 ||
		m.Usage.CacheCreationInputTokens != 1 {
		return fmt.Errorf("%s", m.Usage.RawJSON())
	}
	return nil
}

// sameAnswers compares what a stream accumulates to with the whole answer.
func sameAnswers() error {
	var got [2]map[string]any
	for i, streamed := range []bool{false, true} {
		m, err := send(params("blocks"), streamed)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(m.RawJSON()), &got[i]); err != nil {
			return err
		}
		content := got[i]["content"].([]any)
		content[9].(map[string]any)["content"].(map[string]any)["content"] = nil // the file's ID
		delete(got[i], "container")
		delete(got[i], "id")
	}
	if !reflect.DeepEqual(got[0], got[1]) {
		return fmt.Errorf("whole %v, streamed %v", got[0], got[1])
	}
	return nil
}

// again goes on with a conversation.
func again(p anthropic.MessageNewParams, m *anthropic.Message,
	user ...anthropic.ContentBlockParamUnion) anthropic.MessageNewParams {
	p.Messages = append(slices.Clone(p.Messages), m.ToParam())
	if len(user) > 0 {
		p.Messages = append(p.Messages, anthropic.NewUserMessage(user...))
	}
	if m.Container.ID != "" {
		p.Container = anthropic.MessageCreateParamsContainerUnion{OfString: anthropic.String(m.Container.ID)}
	}
	return p
}

func pauses(streamed bool) error {
	p := params("pause")
	m, err := send(p, streamed)
	if err != nil {
		return err
	}
	if m.StopReason != "pause_turn" || len(m.Content) != 4 {
		return fmt.Errorf("%s", m.RawJSON())
	}
	next, err := send(again(p, m), streamed)
	if err != nil {
		return err
	}
	if got := kinds(next); !slices.Equal(got, []string{"use bash_code_execution", "bash_code_execution_result",
		"text"}) || next.Container.ID != m.Container.ID {
		return fmt.Errorf("%s", next.RawJSON())
	}
	return nil
}

var weatherTool = anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{Name: "weather",
	InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}}}}

func mixed(streamed bool) error {
	p := params("mixed", weatherTool)
	m, err := send(p, streamed)
	if err != nil {
		return err
	}
	if got := kinds(m); m.StopReason != "tool_use" ||
		!slices.Equal(got, []string{"use bash_code_execution", "client weather"}) {
		return fmt.Errorf("%s", m.RawJSON())
	}
	next, err := send(again(p, m, anthropic.NewToolResultBlock(m.Content[1].ID, "rain", false)), streamed)
	if err != nil {
		return err
	}
	if got := kinds(next); !slices.Equal(got, []string{"bash_code_execution_result", "text"}) ||
		next.Content[0].ToolUseID != m.Content[0].ID {
		return fmt.Errorf("%s", next.RawJSON())
	}
	return nil
}

func runner(streamed bool) error {
	asked := 0
	weather, err := toolrunner.NewBetaToolFromBytes("weather", "Tells the weather.",
		[]byte(`{"type":"object","properties":{"city":{"type":"string"}}}`),
		func(_ context.Context, in struct {
			City string `json:"city"`
		}) (anthropic.BetaToolResultBlockParamContentUnion, error) {
			asked++
			return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{
				Text: in.City + ": rain"}}, nil
		})
	if err != nil {
		return err
	}
	p := anthropic.BetaToolRunnerParams{BetaMessageNewParams: anthropic.BetaMessageNewParams{
		Model: "runner", MaxTokens: 100, Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(
			anthropic.NewBetaTextBlock("go"))},
		Tools: []anthropic.BetaToolUnionParam{
			{OfCodeExecutionTool20260120: &anthropic.BetaCodeExecutionTool20260120Param{}}},
	}}
	var last *anthropic.BetaMessage
	if streamed {
		r := talker.Beta.Messages.NewToolRunnerStreaming([]anthropic.BetaTool{weather}, p)
		for events, err := range r.AllStreaming(ctx) {
			if err != nil {
				return err
			}
			for _, err := range events {
				if err != nil {
					return err
				}
			}
		}
		last = r.LastMessage()
	} else if last, err = talker.Beta.Messages.NewToolRunner([]anthropic.BetaTool{weather}, p).RunToCompletion(
		ctx); err != nil {
		return err
	}
	if last == nil || asked != 2 || last.StopReason != "end_turn" {
		return fmt.Errorf("asked %d times, %v", asked, last)
	}
	if !strings.Contains(last.RawJSON(), `"kept\n"`) {
		return errors.New("the container was not kept: " + last.RawJSON())
	}
	return nil
}

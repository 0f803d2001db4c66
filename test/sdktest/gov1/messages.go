package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

var talker = anthropic.NewClient(option.WithBaseURL(os.Getenv("BERTH_MESSAGES_URL")), option.WithAPIKey(
	os.Getenv("BERTH_MESSAGES_KEY")))

// send asks a model that has the code execution tool, and streams the answer or not.
func send(streamed bool) (*anthropic.Message, error) {
	p := anthropic.MessageNewParams{
		Model: "blocks", MaxTokens: 100, Messages: []anthropic.MessageParam{
			anthropic.NewUserMessage(anthropic.NewTextBlock("go"))},
		Tools: []anthropic.ToolUnionParam{{OfCodeExecutionTool20260521: &anthropic.CodeExecutionTool20260521Param{}}},
	}
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

// kinds are the types of results, as the SDK decodes them.
func kinds(m *anthropic.Message) (list []string) {
	for _, b := range m.Content {
		switch v := b.AsAny().(type) {
		case anthropic.BashCodeExecutionToolResultBlock:
			list = append(list, v.Content.Type)
		case anthropic.TextEditorCodeExecutionToolResultBlock:
			list = append(list, v.Content.Type)
		case anthropic.CodeExecutionToolResultBlock:
			list = append(list, v.Content.Type)
		case anthropic.ServerToolUseBlock, anthropic.TextBlock:
		default:
			list = append(list, "unknown "+b.Type)
		}
	}
	return list
}

func blocks() error {
	for _, streamed := range []bool{false, true} {
		m, err := send(streamed)
		if err != nil {
			return err
		}
		want := []string{
			"bash_code_execution_result", "bash_code_execution_tool_result_error",
			"text_editor_code_execution_create_result", "text_editor_code_execution_view_result",
			"text_editor_code_execution_str_replace_result", "text_editor_code_execution_tool_result_error",
			"code_execution_result", "code_execution_tool_result_error",
		}
		if got := kinds(m); !slices.Equal(got, want) || len(m.Content) != 18 || m.Container.ID == "" {
			return fmt.Errorf("streamed %v: %q in %s", streamed, got, m.RawJSON())
		}
	}
	return nil
}

// sameAnswers compares what a stream accumulates to with the whole answer, block by block.
func sameAnswers() error {
	var got [2][]any
	for i, streamed := range []bool{false, true} {
		m, err := send(streamed)
		if err != nil {
			return err
		}
		if m.StopReason != "stop_sequence" || m.StopSequence != "END" || m.Usage.InputTokens != 17 ||
			m.Usage.OutputTokens != 8 || m.Usage.CacheReadInputTokens != 2 {
			return fmt.Errorf("streamed %v: %s", streamed, m.RawJSON())
		}
		for n, b := range m.Content {
			sent, err := json.Marshal(b.ToParam())
			if err != nil {
				return err
			}
			var v map[string]any
			if err := json.Unmarshal(sent, &v); err != nil {
				return err
			}
			if n == 9 {
				v["content"].(map[string]any)["content"] = nil // the file's ID
			}
			got[i] = append(got[i], v)
		}
	}
	if !reflect.DeepEqual(got[0], got[1]) {
		return fmt.Errorf("whole %v, streamed %v", got[0], got[1])
	}
	return nil
}

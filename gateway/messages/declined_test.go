package messages_test

import (
	"fmt"
	"testing"

	"berth/proto"
)

// withOwn returns a request with a tool of the client's beside the code execution tool.
func withOwn(text string, more ...any) map[string]any {
	req := body(bash, text, more...)
	req["tools"] = append(req["tools"].([]any), map[string]any{"name": "own", "input_schema": map[string]any{
		"type": "object"}})
	return req
}

// ownResult is the result of the client's call in the scripts below.
func ownResult(failed bool, more ...any) []any {
	return append([]any{map[string]any{"type": "tool_result", "tool_use_id": "toolu_own", "content": "ok",
		"is_error": failed}}, more...)
}

func text(text string) any { return map[string]any{"type": "text", "text": text} }

const (
	aCommand = `{"type": "tool_use", "id": "toolu_a", "name": "bash_code_execution", "input": {"command": "echo ran >>/workspace/n; echo %s"}}`
	anOwn    = `{"type": "tool_use", "id": "toolu_own", "name": "own", "input": {}}`
	notRun   = `{"type": "tool_result", "tool_use_id": "toolu_a", "is_error": true, "content": {"$contains": "was not run"}}`
)

// A command that no answer has deferred is not run when the conversation goes on. The model is told that.
func TestCommandThatWasDeclined(t *testing.T) {
	for name, c := range map[string]struct {
		answer string // of the upstream
		stop   string
		user   any
		last   string // what the upstream gets in the end
	}{
		"limit":           {aCommand, "max_tokens", "No, do not run that.", notRun + `, {"text": "No, do not run that."}`},
		"refusal":         {aCommand, "refusal", "No.", notRun + `, {"text": "No."}`},
		"context":         {aCommand, "model_context_window_exceeded", "No.", notRun + `, {"text": "No."}`},
		"stop sequence":   {aCommand, "stop_sequence", "No.", notRun + `, {"text": "No."}`},
		"nothing follows": {aCommand, "max_tokens", nil, notRun},
		"limit beside the client's call": {anOwn + "," + aCommand, "max_tokens", ownResult(false, text("No.")),
			`{"tool_use_id": "toolu_own"}, ` + notRun + `, {"text": "No."}`},
		"limit beside the client's call, without a word": {aCommand + "," + anOwn, "max_tokens", ownResult(true),
			`{"tool_use_id": "toolu_own"}, ` + notRun},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				s := newSite(t, `{"plain": true, "turns": [
					{"answer": {"stop_reason": "`+c.stop+`", "content": [`+fmt.Sprintf(c.answer, "x")+`]}},
					{"expect": {"last": [`+c.last+`]}, "answer": {"content": [{"type": "text", "text": "as you wish"}]}}]}`)
				req := withOwn("go", "stream", stream)
				first := s.ask(req).msg
				if first.StopReason != c.stop || first.Container != nil {
					t.Fatalf("%+v", first)
				}
				second := s.ask(again(req, first, c.user)).msg
				s.played()
				if second.types() != "text" || second.Container != nil {
					t.Errorf("%+v", second)
				}
				s.none()
			})
		})
	}
}

// A client may stop reading in the middle of a call's input. Its history then has the beginning of the input, which is
// never run, whatever the client sends with it.
func TestCommandWhoseInputTheClientHasHalf(t *testing.T) {
	const half = "echo ran >>/workspace/n; ec"
	for name, c := range map[string]struct {
		script string
		run    bool
		input  string
	}{
		"the stream broke off": {`{"answer": {"content": [` + anOwn + `,` + fmt.Sprintf(aCommand, "x") +
			`], "cut": {"after_events": 8, "by": "break"}}}`, false, half},
		"the client stopped reading":  {`{"answer": {"content": [` + anOwn + `,` + fmt.Sprintf(aCommand, "x") + `]}}`, false, half},
		"nothing of the input":        {`{"answer": {"content": [` + anOwn + `,` + fmt.Sprintf(aCommand, "x") + `]}}`, false, ""},
		"the user changed the input":  {`{"answer": {"content": [` + anOwn + `,` + fmt.Sprintf(aCommand, "x") + `]}}`, true, "echo mine"},
		"the client read all of it":   {`{"answer": {"content": [` + anOwn + `,` + fmt.Sprintf(aCommand, "x") + `]}}`, true, half + "ho x"},
		"the call of another service": {`{"answer": {"content": [{"type": "text", "text": "hi"}]}}`, true, half + "ho y"},
	} {
		t.Run(name, func(t *testing.T) {
			last := `{"tool_use_id": "toolu_own"}, {"tool_use_id": "toolu_a", "content": {"$not": {"$contains": "not run"}}}`
			if !c.run {
				last = `{"tool_use_id": "toolu_own"}, ` + notRun
			}
			s := newSite(t, `{"plain": true, "turns": [`+c.script+`,
				{"expect": {"last": [`+last+`]}, "answer": {"content": [{"type": "text", "text": "as you wish"}]}}]}`)
			box := s.Create(t, proto.CreateContainer{})
			req := withOwn("go", "stream", true)
			s.send(encode(t, req))
			input := map[string]any{}
			if c.input != "" {
				input["command"] = c.input
			}
			m := message{Content: []map[string]any{{"type": "tool_use", "id": "toolu_own", "name": "own",
				"input": map[string]any{}}, {"type": "server_tool_use", "id": "srvtoolu_a",
				"name": "bash_code_execution", "input": input}}}
			next := again(req, m, ownResult(true))
			next["container"] = box.ID()
			s.ask(next)
			s.played()
			_, err := box.Stat(t.Context(), proto.UserDefault, "/workspace/n")
			if ran := err == nil; ran && !c.run {
				t.Error("the command ran")
			}
		})
	}
}

// Some upstreams give their calls the same IDs in each conversation. A call that one answer has deferred is run,
// although another one with its ID was cut off.
func TestDeferredCallWithAnIDOfAnotherConversation(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [
			{"answer": {"content": [`+anOwn+`,`+fmt.Sprintf(aCommand, "x")+`]}},
			{"answer": {"stop_reason": "max_tokens", "content": [`+anOwn+`,`+fmt.Sprintf(aCommand, "y")+`]}},
			{"expect": {"last": [{"tool_use_id": "toolu_own"}, `+notRun+`]}, "answer": {"content": [{"type": "text", "text": "no"}]}},
			{"expect": {"last": [{"tool_use_id": "toolu_own"}, {"tool_use_id": "toolu_a", "content": "x\n"}]}, "answer": {"content": [{"type": "text", "text": "yes"}]}}]}`)
		first, second := withOwn("one", "stream", stream), withOwn("two", "stream", stream)
		deferred, cut := s.ask(first).msg, s.ask(second).msg
		s.ask(again(second, cut, ownResult(false)))
		s.ask(again(first, deferred, ownResult(false)))
		s.played()
	})
}

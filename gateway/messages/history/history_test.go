package history

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/gateway/messages/rawjson"
)

// translate returns the history of a request as the upstream gets it.
func translate(t *testing.T, messages string) (string, []Call) {
	t.Helper()
	list, err := Read([]byte(messages))
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for i, m := range list {
		if m.Role == "assistant" {
			last = i
		}
	}
	h := New(list, map[string]string{"file_1": "/workspace/inputs/a.csv"})
	calls := h.TakePending(last)
	if !json.Valid(rawOf(h)) {
		t.Fatalf("no JSON: %s", rawOf(h))
	}
	return string(rawOf(h)), calls
}

// rawOf returns a history as JSON.
func rawOf(h *History) (raw []byte) {
	h.Pieces(func(piece []byte) bool {
		raw = append(raw, piece...)
		return true
	})
	return raw
}

const (
	useA = `{"type":"server_tool_use","id":"srvtoolu_a","name":"bash_code_execution","input":{"command":"x"},"caller":{"type":"direct"}}`
	resA = `{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_a","content":{"type":"bash_code_execution_result","stdout":"1","stderr":"","return_code":0,"content":[{"type":"bash_code_execution_output","file_id":"file_9"}]}}`
	useB = `{"type":"server_tool_use","id":"srvtoolu_b","name":"text_editor_code_execution","input":{}}`
	resB = `{"type":"text_editor_code_execution_tool_result","tool_use_id":"srvtoolu_b","content":{"type":"text_editor_code_execution_tool_result_error","error_code":"file_not_found","error_message":"no /x"}}`
	upA  = `{"type":"tool_use","id":"toolu_a","name":"bash_code_execution","input":{"command":"x"}}`
	upB  = `{"type":"tool_use","id":"toolu_b","name":"text_editor_code_execution","input":{}}`
	ansA = `{"type":"tool_result","tool_use_id":"toolu_a","content":"1\n[file for the user: file_9]"}`
	ansB = `{"type":"tool_result","tool_use_id":"toolu_b","content":"Error: file_not_found: there is no such file: no /x","is_error":true}`
	own  = `{"type":"tool_use","id":"toolu_c","name":"mine","input":{}}`
	done = `{"type":"tool_result","tool_use_id":"toolu_c","content":"ok"}`
	hi   = `{"role":"user","content":"hi"}`

	notRun = `{"type":"tool_result","tool_use_id":"toolu_a","content":"Error: this call was not run, or it was stopped before it had a result.","is_error":true}`
)

func TestHistoryAsTheUpstreamGetsIt(t *testing.T) {
	for name, c := range map[string]struct {
		in, out string
		pending int
	}{
		"what is not ours stays, byte for byte": {
			in:  `[{"role": "user","content": [ {"type":"text","text":"a"} ], "x": 1}, {"role":"assistant","content":[{"type":"web_search_tool_result","content":[]},{"type":"server_tool_use","name":"web_search"}]},` + hi + `]`,
			out: `[{"role": "user","content": [ {"type":"text","text":"a"} ], "x": 1},{"role":"assistant","content":[{"type":"web_search_tool_result","content":[]},{"type":"server_tool_use","name":"web_search"}]},` + hi + `]`},
		"one call and a text": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `,` + resA +
			`,{"type":"text","text":"t"}]},` + hi + `]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `]},{"role":"user","content":[` + ansA +
				`]},{"role":"assistant","content":[{"type":"text","text":"t"}]},` + hi + `]`},
		"two at once": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `,` + useB + `,` + resA + `,` +
			resB + `]},` + hi + `]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `,` + upB + `]},{"role":"user","content":[` +
				ansA + `,` + ansB + `,{"type":"text","text":"hi"}]}]`},
		"one after the other, sent back after a pause": {in: `[` + hi + `,{"role":"assistant","content":[` + useA +
			`,` + resA + `,` + useB + `,` + resB + `]}]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `]},{"role":"user","content":[` + ansA +
				`]},{"role":"assistant","content":[` + upB + `]},{"role":"user","content":[` + ansB + `]}]`},
		"deferred behind a tool of the client's": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `,` +
			own + `]},{"role":"user","content":[` + done + `]},{"role":"assistant","content":[` + resA +
			`,{"type":"text","text":"t"}]},` + hi + `]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `,` + own + `]},{"role":"user","content":[` +
				done + `,` + ansA + `]},{"role":"assistant","content":[{"type":"text","text":"t"}]},` + hi + `]`},
		"still to be run": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `,` + own +
			`]},{"role":"user","content":[` + done + `]}]`, pending: 1,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `,` + own + `]},{"role":"user","content":[` +
				done + `]}]`},
		"declined": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `]},` + hi + `]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `]},{"role":"user","content":[` + notRun +
				`,{"type":"text","text":"hi"}]}]`},
		"cut off, and nothing follows": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `]}]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `]},{"role":"user","content":[` + notRun + `]}]`},
		"declined with the client's own call": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `,` + own +
			`]},` + hi + `]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `,` + own + `]},{"role":"user","content":[` +
				notRun + `,{"type":"text","text":"hi"}]}]`},
		"one of two calls has its result": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `,` + useB + `,` +
			resB + `]},` + hi + `]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `,` + upB + `]},{"role":"user","content":[` +
				ansB + `,` + notRun + `,{"type":"text","text":"hi"}]}]`},
		"given up long ago": {in: `[` + hi + `,{"role":"assistant","content":[` + useA + `]},` + hi +
			`,{"role":"assistant","content":[{"type":"text","text":"t"}]},` + hi + `]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA +
				`]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":"Error: this call was not run, or it was stopped before it had a result.","is_error":true},{"type":"text","text":"hi"}]},{"role":"assistant","content":[{"type":"text","text":"t"}]},` + hi + `]`},
		"calls that code made": {in: `[` + hi + `,{"role":"assistant","content":[` + useA +
			`,{"type":"tool_use","id":"toolu_p","name":"q","input":{},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_a"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_p","content":"r"}]},{"role":"assistant","content":[` + resA + `,{"type":"text","text":"t"}]}]`,
			out: `[` + hi + `,{"role":"assistant","content":[` + upA + `]},{"role":"user","content":[` + ansA +
				`]},{"role":"assistant","content":[{"type":"text","text":"t"}]}]`},
		"an uploaded file": {
			in:  `[{"role":"user","content":[{"type":"container_upload","file_id":"file_1","cache_control":{"type":"ephemeral"}},{"type":"container_upload","file_id":"file_2"}]}]`,
			out: `[{"role":"user","content":[{"type":"text","text":"The user gave a file, /workspace/inputs/a.csv in the container ($INPUT_DIR).","cache_control":{"type":"ephemeral"}},{"type":"text","text":"The user gave a file, file_2, which is not available any more."}]}]`},
		"what only another server can read": {
			in: `[` + hi +
				`,{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_e","name":"code_execution","input":{}},{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_e","content":{"type":"encrypted_code_execution_result","encrypted_stdout":"x"}}]}]`,
			out: `[` + hi +
				`,{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_e","name":"code_execution","input":{}},{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_e","content":{"type":"encrypted_code_execution_result","encrypted_stdout":"x"}}]}]`},
		"a result of nothing": {in: `[` + hi + `,{"role":"assistant","content":[` + resA +
			`,{"type":"text","text":"t"}]}]`,
			out: `[` + hi + `,{"role":"assistant","content":[{"type":"text","text":"t"}]}]`},
	} {
		got, calls := translate(t, c.in)
		if got != c.out || len(calls) != c.pending {
			t.Errorf("%s: %d pending\n got %s\nwant %s", name, len(calls), got, c.out)
		}
	}
}

// The time for a conversation with many calls must be a small multiple of the time for reading it.
func TestManyCalls(t *testing.T) {
	const n = 8000
	var uses, results, turns []json.RawMessage
	message := func(content ...json.RawMessage) json.RawMessage {
		return rawjson.Object{}.With("role", "assistant").With("content", rawjson.Join(content)).Raw()
	}
	for i := range n {
		use := json.RawMessage(strings.Replace(useB, "_b", "_"+strconv.Itoa(i), 1))
		uses, turns = append(uses, use), append(turns, message(use))
		results = append(results, json.RawMessage(strings.Replace(resB, "_b", "_"+strconv.Itoa(i), 1)))
	}
	for name, messages := range map[string][]json.RawMessage{
		"in one answer":   {message(append(uses, results...)...)},
		"in one for each": append(turns, message(results...)),
	} {
		raw := rawjson.Join(messages)
		began := time.Now()
		var decoded []any
		if err := json.Unmarshal(raw, &decoded); err != nil {
			t.Fatal(err)
		}
		read := time.Since(began)
		list, err := Read(raw)
		if err != nil {
			t.Fatal(err)
		}
		h := New(list, nil)
		calls := h.TakePending(len(messages) - 1)
		if got := strings.Count(string(rawOf(h)), `"tool_result"`); len(calls) > 0 || got != n {
			t.Errorf("%s: %d calls are pending, %d have results", name, len(calls), got)
		}
		if took := time.Since(began); took > 20*read {
			t.Errorf("%s: it took %s, and reading it %s", name, took, read)
		}
	}
}

func FuzzHistory(f *testing.F) {
	for _, seed := range []string{
		`[` + hi + `,{"role":"assistant","content":[` + useA + `,` + useB + `,` + resB + `,` + own +
			`]},{"role":"user","content":[` + done + `]},{"role":"assistant","content":[` + resA + `]}]`,
		`[{"role":"user","content":null}]`, `[{"role":"assistant","content":[1,"x",{}]}]`, `[{}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		list, err := Read(data)
		if err != nil {
			return
		}
		h := New(list, nil)
		for _, c := range h.TakePending(len(list) - 1) {
			h.Abandon(c)
		}
		if !json.Valid(rawOf(h)) {
			t.Fatalf("no JSON: %s", rawOf(h))
		}
	})
}

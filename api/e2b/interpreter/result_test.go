package interpreter

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/proto"
)

func TestResults(t *testing.T) {
	got, err := json.Marshal(resultOf(proto.Display{Main: true, Rich: proto.Bundle{
		"text/plain": json.RawMessage(`"'a'"`), "image/png": json.RawMessage(`"AAAA"`), "x/y": json.RawMessage(`1`),
		tableType: json.RawMessage(`{"columns":[{"name":"n"},{"name":"s"}],"rows":[[1,"x"],[2,null]]}`)}}))
	const want = `{"data":{"n":[1,2],"s":["x",null]},"extra":{"x/y":1},"is_main_result":true,"png":"AAAA","text":"a",` +
		`"type":"result"}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s, want\n%s", err, got, want)
	}
	for text, want := range map[string]string{`'a'`: "a", `"a"`: "a", `'`: "'", `'a"`: `'a"`, "": "", "''": ""} {
		if got := unquoted(text); got != want {
			t.Errorf("%s without quotes is %s, want %s", text, got, want)
		}
	}
}

// TestLinesOfOutput checks that the pieces of a line are one event, and that no event overtakes output.
func TestLinesOfOutput(t *testing.T) {
	w := httptest.NewRecorder()
	l := &lineWriter{w: w}
	l.open()
	for _, p := range []proto.Progress{{Type: "start", ExecutionCount: 2}, {Type: "stdout", Data: "a"},
		{Type: "stdout", Data: " "}, {Type: "stdout", Data: "b\n"}, {Type: "stdout", Data: "half"},
		{Type: "stderr", Data: "e\n"}, {Type: "stdout", Data: "rest"}} {
		if err := l.progress(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.send(plainEvent{"end_of_execution"}); err != nil {
		t.Fatal(err)
	}
	l.stop()
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		var e struct {
			Type, Text string
			Count      int `json:"execution_count"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "keepalive" {
			got = append(got, e.Type+":"+e.Text)
		}
	}
	// A busy machine may have sent half of a line alone.
	if all := strings.Join(got, "|"); !strings.HasPrefix(all, "number_of_executions:|stdout:a") ||
		!strings.HasSuffix(all, "|stderr:e\n|stdout:rest|end_of_execution:") ||
		!strings.Contains(all, "b\n|stdout:half|") {
		t.Errorf("the events are %q", all)
	}
}

func TestLanguageNames(t *testing.T) {
	for asked, want := range map[string]string{"": "python", "Python": "python", "javascript": "js", "js": "js",
		"TypeScript": "ts", "R": "r", "bash": "bash"} {
		if got, ok := ownName(asked); got != want || !ok {
			t.Errorf("%q is %q, %t", asked, got, ok)
		}
	}
	if _, ok := ownName("cobol"); ok {
		t.Error("there is no cobol")
	}
	if got := describe("ts", "x", ""); got.Language != "typescript" || got.Cwd != home {
		t.Errorf("a context is %+v", got)
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpstreamScript plays a script as `berth upstream-script` does.
func TestUpstreamScript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(path, []byte(
		`{"turns": [{"expect": {"model": "m"}, "answer": {"content": [{"type": "text", "text": "hi"}]}}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var mistakes bytes.Buffer
	cmd := upstreamScriptCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{path})
	cmd.SetOut(in)
	cmd.SetErr(&mistakes)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx); _ = in.Close() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err, <-ended)
	}
	post := func(model string) int {
		r, _ := http.NewRequest("POST", strings.TrimSpace(line)+"/v1/messages", strings.NewReader(`{"model":"`+model+
			`","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`))
		r.Header.Set("anthropic-version", "2023-06-01")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if status := post("other"); status != 400 {
		t.Errorf("another model: %d", status)
	}
	if status := post("m"); status != 200 {
		t.Errorf("the right one: %d", status)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "does not expect") ||
		!strings.Contains(mistakes.String(), `/model is "other"; expected "m"`) {
		t.Errorf("%v; %s", err, mistakes.String())
	}
}

// TestUpstreamScriptOfTheHelp checks that the example in the help is a valid script for requests of the gateway.
func TestUpstreamScriptOfTheHelp(t *testing.T) {
	_, rest, _ := strings.Cut(upstreamScriptCommand().Long, "one for each request:\n")
	example, _, _ := strings.Cut(rest, "What is expected")
	path := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	srv, err := openScript(upstreamScriptCommand(), path)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"What date is it?"}]}],
		"tools":[{"name":"bash_code_execution","input_schema":{"type":"object"}},{"name":"text_editor_code_execution","input_schema":{"type":"object"}}]}`))
	r.Header.Set("anthropic-version", "2023-06-01")
	if srv.ServeHTTP(w, r); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), `"name":"bash_code_execution"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestUpstreamScriptThatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script.json")
	if err := os.WriteFile(path, []byte(`{"turn": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := upstreamScriptCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{path})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), `"turn"`) {
		t.Error(err)
	}
}

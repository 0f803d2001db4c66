package daemon_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
	"berth/test/scripted"
)

// withModel makes the shared daemon use a scripted model until the test ends.
func withModel(t *testing.T, script string) *scripted.Server {
	t.Helper()
	read, err := scripted.Load(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	model := scripted.New(read)
	web := httptest.NewServer(model)
	flags := base.Flags
	t.Cleanup(func() {
		base.Flags = flags
		base.restart(t, syscall.SIGKILL)
		web.Close()
	})
	base.Flags = append(slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == "--stop-on-exit" }),
		"--upstream", web.URL)
	base.restart(t, syscall.SIGKILL)
	return model
}

// A turnAnswer has the fields of a message that the tests check.
type turnAnswer struct {
	Content []struct {
		Type    string          `json:"type"`
		Content json.RawMessage `json:"content"`
		Raw     json.RawMessage `json:"-"`
	} `json:"content"`
	StopReason string              `json:"stop_reason"`
	Container  *proto.ContainerRef `json:"container"`
	Error      *struct {
		Message string                      `json:"message"`
		Details struct{ Error_code string } `json:"details"`
	} `json:"error"`
}

// result returns the output of a command in the n-th block.
func (a turnAnswer) result(t *testing.T, n int) (r proto.BashResult) {
	t.Helper()
	if n >= len(a.Content) || json.Unmarshal(a.Content[n].Content, &r) != nil {
		t.Fatalf("no result at %d: %+v", n, a)
	}
	return r
}

// turn sends a request with the tool. It returns an error if the connection fails.
func turn(container, version, retry string) (int, turnAnswer, error) {
	var a turnAnswer
	req := map[string]any{"model": "m", "max_tokens": 9,
		"tools": []any{map[string]any{"type": version, "name": "code_execution"}}, "messages": []any{
			map[string]any{"role": "user", "content": "go"}}}
	if container != "" {
		req["container"] = container
	}
	body, err := json.Marshal(req)
	if err != nil {
		return 0, a, err
	}
	r, err := http.NewRequest("POST", base.URL+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return 0, a, err
	}
	r.Header.Set("X-Api-Key", base.Key)
	r.Header.Set("anthropic-version", "2023-06-01")
	r.Header.Set("X-Stainless-Retry-Count", retry)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, a, err
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, a, err
	}
	return res.StatusCode, a, json.Unmarshal(out, &a)
}

func mustTurn(t *testing.T, container, version string) turnAnswer {
	t.Helper()
	status, a, err := turn(container, version, "0")
	if err != nil || status != 200 {
		t.Fatalf("%d %v %+v", status, err, a)
	}
	return a
}

const (
	bashTool = "code_execution_20250825"
	replTool = "code_execution_20260120"
)

// TestMessagesInContainers checks that a conversation continues in its container, whatever happens to the container
// or the daemon between two turns.
func TestMessagesInContainers(t *testing.T) {
	model := withModel(t, `{"plain": true, "loop": true, "turns": [
		{"answer": {"content": [
			{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; wc -l </workspace/n; id -u; echo f >$OUTPUT_DIR/f.txt"}},
			{"type": "tool_use", "name": "code_execution", "input": {"code": "import sys\nx = globals().get('x', 0) + 1\nprint(x, sys.version_info[:2])"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	first := mustTurn(t, "", replTool)
	if r := first.result(t, 2); r.Stdout != "1\n1000\n" || len(r.Content) != 1 ||
		first.result(t, 3).Stdout != "1 (3, 11)\n" {
		t.Fatalf("%+v", first)
	}
	id := first.Container.ID
	t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/containers/"+id, nil) })
	if status, out, err := base.Do("GET", "/v1/files/"+first.result(t, 2).Content[0].FileID+"/content",
		nil); status != 200 || string(out) != "f\n" {
		t.Errorf("%d %v %q", status, err, out)
	}
	for n, c := range []struct {
		name, python string
		between      func()
	}{
		{"nothing", "2", func() {}},
		{"paused", "3", func() { call[proto.Container](t, base, 200, "POST", "/v1/containers/"+id+"/pause", "") }},
		{"stopped", "1", func() { call[proto.Container](t, base, 200, "POST", "/v1/containers/"+id+"/stop", "") }},
		{"killed", "1", func() {
			kill(t, base.inside(base.sandbox(t, id)))
			becomes(t, base, id, proto.StateStopped)
		}},
		{"the daemon killed", "1", func() { base.restart(t, syscall.SIGKILL) }},
	} {
		c.between()
		a := mustTurn(t, id, replTool)
		if lines, _, _ := strings.Cut(a.result(t, 2).Stdout, "\n"); lines != string(rune('2'+n)) ||
			!strings.HasPrefix(a.result(t, 3).Stdout, c.python+" ") || a.Container.ID != id {
			t.Errorf("%s: %s and %s", c.name, a.result(t, 2).Stdout, a.result(t, 3).Stdout)
		}
	}
	short := call[proto.Container](t, base, 201, "POST", "/v1/containers", `{"max_lifetime_seconds": 1}`)
	asked := len(model.Requests())
	eventually(t, "the container expires", func() bool {
		status, _, err := base.Do("GET", "/v1/containers/"+short.ID, nil)
		return err == nil && status == 410
	})
	status, a, err := turn(short.ID, bashTool, "0")
	if err != nil || status != 404 || a.Error == nil || a.Error.Details.Error_code != "container_expired" ||
		!strings.Contains(a.Error.Message, short.ID) || len(model.Requests()) != asked {
		t.Errorf("%d %v %+v", status, err, a.Error)
	}
	if err := model.Err(); err != nil {
		t.Error(err)
	}
}

// TestCodeCallsTheClientsTools checks that code in a container can call the client's tools, many at once, and
// continues when they are answered.
func TestCodeCallsTheClientsTools(t *testing.T) {
	model := withModel(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "import asyncio\nx = 5\nrows = await asyncio.gather(*[query({'n': i}) for i in range(50)])\nprint(x, sum(int(r) for r in rows))"}}]}},
		{"expect": {"messages": 3, "last": [{"content": "5 1225\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	req := map[string]any{
		"model": "m", "max_tokens": 9, "messages": []any{map[string]any{"role": "user", "content": "go"}},
		"tools": []any{map[string]any{"type": replTool, "name": "code_execution"},
			map[string]any{"name": "query", "input_schema": map[string]any{"type": "object"}, "allowed_callers": []any{
				replTool}}},
	}
	type answer struct {
		Content []struct {
			Type, ID string
			Input    struct{ N int }
			Content  proto.BashResult
		}
		Container proto.ContainerRef
	}
	var whole struct{ Content []any }
	status, out, err := base.Do("POST", "/v1/messages", strings.NewReader(asJSON(t, req)))
	var first answer
	if err != nil || status != 200 || json.Unmarshal(out, &first) != nil || json.Unmarshal(out, &whole) != nil ||
		len(first.Content) != 51 {
		t.Fatalf("%d %v %s", status, err, out)
	}
	t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/containers/"+first.Container.ID, nil) })
	var results []any
	for _, b := range first.Content[1:] {
		results = append(results, map[string]any{"type": "tool_result", "tool_use_id": b.ID, "content": strconv.Itoa(
			b.Input.N)})
	}
	req["messages"] = append(req["messages"].([]any), map[string]any{"role": "assistant", "content": whole.Content},
		map[string]any{"role": "user", "content": results})
	req["container"] = first.Container.ID
	second := call[answer](t, base, 200, "POST", "/v1/messages", asJSON(t, req))
	if len(second.Content) != 2 || second.Content[0].Type != "code_execution_tool_result" ||
		second.Content[0].Content.Stdout != "5 1225\n" {
		t.Errorf("%+v", second)
	}
	if err := model.Err(); err != nil || model.Left() > 0 {
		t.Error(err, model.Left())
	}
}

// TestMessagesGoOnWithTheNextDaemon ends the daemon while a command runs. The SDK's retry must get the result of the
// same command.
func TestMessagesGoOnWithTheNextDaemon(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) { goesOn(t, sig) })
	}
}

func goesOn(t *testing.T, sig syscall.Signal) {
	model := withModel(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; while ! test -e /workspace/go; do sleep 0.1; done; cat /workspace/n"}}]}},
		{"expect": {"last": [{"content": "x\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	c := create(t, base)
	type end struct {
		status int
		err    error
	}
	cut := make(chan end, 1)
	go func() {
		status, _, err := turn(c.ID, bashTool, "0")
		cut <- end{status, err}
	}()
	waitRunning(t, base, c.ID)
	base.Stop(sig)
	// A killed daemon sends no answer. A terminated one asks the client to retry.
	if e := <-cut; sig == syscall.SIGKILL && e.err == nil || sig == syscall.SIGTERM && e.status != 529 {
		t.Errorf("a request outlived its daemon: %+v", e)
	}
	if err := base.Start(); err != nil {
		t.Fatal(err)
	}
	again := make(chan turnAnswer, 1)
	go func() {
		_, a, _ := turn(c.ID, bashTool, "1")
		again <- a
	}()
	bash(t, base, c.ID, "touch /workspace/go")
	a := <-again
	if len(a.Content) != 3 || a.result(t, 1).Stdout != "x\n" || a.StopReason != "end_turn" || a.Container == nil ||
		a.Container.ID != c.ID {
		t.Errorf("%+v", a)
	}
	if err := model.Err(); err != nil || model.Left() > 0 {
		t.Error(err, model.Left())
	}
}

// TestEqualTurnsGoOnWithTheNextDaemon kills the daemon while two equal questions run, each with two commands at the same
// time. The retry of each must get the results of its own commands.
func TestEqualTurnsGoOnWithTheNextDaemon(t *testing.T) {
	const command = `{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/$N; until test -e /workspace/go; do sleep 0.1; done; cat /workspace/$N"}}`
	both := strings.ReplaceAll(command, "$N", "a") + "," + strings.ReplaceAll(command, "$N", "b")
	model := withModel(t, `{"plain": true, "turns": [{"repeat": 2, "answer": {"content": [`+both+`]}},
		{"repeat": 2, "expect": {"last": [{"content": "x\n"}, {"content": "x\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	type end struct {
		answer turnAnswer
		err    error
	}
	ends := make(chan end, 2)
	send := func(retry string) {
		_, a, err := turn("", bashTool, retry)
		ends <- end{a, err}
	}
	before := containerIDs(t)
	go send("0")
	go send("0")
	var made []string
	eventually(t, "four commands", func() bool {
		made = slices.DeleteFunc(containerIDs(t), func(id string) bool { return slices.Contains(before, id) })
		n := 0
		for _, id := range made {
			n += call[proto.Container](t, base, 200, "GET", "/v1/containers/"+id, "").RunningExecs
		}
		return n == 4
	})
	base.restart(t, syscall.SIGKILL)
	for range 2 {
		if e := <-ends; e.err == nil {
			t.Error("a request outlived its daemon")
		}
	}
	go send("1")
	go send("1")
	for _, id := range made {
		bash(t, base, id, "touch /workspace/go")
		t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/containers/"+id, nil) })
	}
	var used []string
	for range 2 {
		e := <-ends
		if e.err != nil || len(e.answer.Content) != 5 || e.answer.Container == nil {
			t.Fatalf("%v %+v", e.err, e.answer)
		}
		used = append(used, e.answer.Container.ID)
	}
	slices.Sort(used)
	if slices.Sort(made); !slices.Equal(used, made) {
		t.Errorf("the answers have the containers %v, those of the questions are %v", used, made)
	}
	if err := model.Err(); err != nil || model.Left() > 0 {
		t.Error(err, model.Left())
	}
}

// containerIDs returns the IDs of all containers.
func containerIDs(t *testing.T) (ids []string) {
	t.Helper()
	list := call[struct{ Data []proto.Container }](t, base, 200, "GET", "/v1/containers?limit=1000", "")
	for _, c := range list.Data {
		ids = append(ids, c.ID)
	}
	return ids
}

// TestContainerDiesInATurn kills a container during a command. The result must say so, and the turn continues in the
// same container with its files.
func TestContainerDiesInATurn(t *testing.T) {
	model := withModel(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo kept >/workspace/f; echo $$ >/workspace/pid; sleep 100"}}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "cat /workspace/f"}}]}},
		{"expect": {"last": [{"content": "kept\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	c := create(t, base)
	answered := make(chan turnAnswer, 1)
	go func() {
		_, a, err := turn(c.ID, bashTool, "0")
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	bash(t, base, c.ID, "until test -s /workspace/pid; do sleep 0.01; done")
	kill(t, base.inside(base.sandbox(t, c.ID)))
	a := <-answered
	if len(a.Content) != 5 || !strings.Contains(string(a.Content[1].Content), `"error_code":"unavailable"`) ||
		a.result(t, 3).Stdout != "kept\n" || a.StopReason != "end_turn" {
		t.Errorf("%+v", a)
	}
	if err := model.Err(); err != nil || model.Left() > 0 {
		t.Error(err, model.Left())
	}
}

// TestPythonIsNotRunTwice checks that Python code that ended with the daemon is not run again. Its progress is
// unknown, and the answer says so.
func TestPythonIsNotRunTwice(t *testing.T) {
	model := withModel(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "open('/workspace/n', 'a').write('x')\nimport time\ntime.sleep(1000)"}}]}},
		{"expect": {"last": [{"is_error": true, "content": {"$contains": "unavailable"}}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	c := create(t, base)
	cut := make(chan error, 1)
	go func() {
		_, _, err := turn(c.ID, replTool, "0")
		cut <- err
	}()
	eventually(t, "the code is at work", func() bool {
		status, out, err := base.Do("GET", "/v1/containers/"+c.ID+"/fs/content?path=/workspace/n", nil)
		return err == nil && status == 200 && string(out) == "x"
	})
	base.restart(t, syscall.SIGKILL)
	if err := <-cut; err == nil {
		t.Error("a request outlived its daemon")
	}
	status, a, err := turn(c.ID, replTool, "1")
	if err != nil || status != 200 || len(a.Content) != 3 ||
		!strings.Contains(string(a.Content[1].Content), `"unavailable"`) {
		t.Errorf("%d %v %+v", status, err, a)
	}
	if out := bash(t, base, c.ID, "cat /workspace/n"); out.Result.Result.Stdout != "x" {
		t.Errorf("it ran as often as this says: %q", out.Result.Result.Stdout)
	}
	if err := model.Err(); err != nil || model.Left() > 0 {
		t.Error(err, model.Left())
	}
}

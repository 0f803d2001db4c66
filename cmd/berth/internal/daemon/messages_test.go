package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/gateway/scripted"
	"berth/proto"
)

// A reply is what these tests look at of an answer of /v1/messages.
type reply struct {
	Content []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Content struct {
			Type       string `json:"type"`
			Stdout     string `json:"stdout"`
			ReturnCode int    `json:"return_code"`
			ErrorCode  string `json:"error_code"`
		} `json:"content"`
	} `json:"content"`
	StopReason string              `json:"stop_reason"`
	Container  *proto.ContainerRef `json:"container"`
	Error      struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Details struct {
			ErrorCode string `json:"error_code"`
		} `json:"details"`
	} `json:"error"`
}

// result is the content of the first result block.
func (m reply) result(t *testing.T) (kind, stdout string) {
	t.Helper()
	for _, b := range m.Content {
		if b.Type == "bash_code_execution_tool_result" {
			return b.Content.Type + b.Content.ErrorCode, b.Content.Stdout
		}
	}
	t.Fatalf("no result in %+v", m)
	return "", ""
}

// modelled starts base anew with a model that plays a script, until the end of the test.
func modelled(t *testing.T, script string, flags ...string) *scripted.Server {
	t.Helper()
	read, err := scripted.Load(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	model := scripted.New(read)
	web := httptest.NewServer(model)
	t.Cleanup(web.Close)
	before := base.Flags
	t.Cleanup(func() { base.Flags = before; base.restart(t, syscall.SIGTERM) })
	base.Flags = append(slices.DeleteFunc(slices.Clone(before), func(f string) bool { return f == "--stop-on-exit" }), append(flags, "--upstream", web.URL)...)
	base.restart(t, syscall.SIGTERM)
	return model
}

// running is a script that runs command once in each turn of the conversation for which said is said.
func running(said, command string) string {
	c, _ := json.Marshal(command)
	return fmt.Sprintf(`{"name":%q,"when":{"last":[{"type":"text","text":%q}]},"loop":true,"turns":[{"answer":{"content":[{"type":"tool_use","name":"bash_code_execution","input":{"command":%s}}]}}]}`, said, said, c)
}

// scripts has each of the conversations, and whatever comes back from a command is the end of a turn.
func scripts(conversations ...string) string {
	return `{"conversations":[` + strings.Join(conversations, ",") + `],"loop":true,"turns":[{"expect":{"last":[{"type":"tool_result"}]},"answer":{"content":[{"type":"text","text":"done"}]}}]}`
}

// say is a request with the tool, in a container if one is named.
func say(text, container string) string {
	where := ""
	if container != "" {
		where = fmt.Sprintf(`"container":%q,`, container)
	}
	return fmt.Sprintf(`{"model":"m","max_tokens":1000,%s"messages":[{"role":"user","content":[{"type":"text","text":%q}]}],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`, where, text)
}

// awaitState waits until the daemon knows that a container is in a state.
func awaitState(t *testing.T, id string, want proto.State) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		have := call[proto.Container](t, base, 200, "GET", "/v1/containers/"+id, "").State
		if have == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("container %s is %s, not %s", id, have, want)
		}
	}
}

// A conversation goes on in its container whatever became of that between two turns: the container killed, paused, stopped, the daemon
// killed; once it is deleted or expired, the error says so before the model is asked.
func TestConversationGoesOn(t *testing.T) {
	model := modelled(t, scripts(running("begin", "echo one >/workspace/kept; echo begun"), running("go on", "echo two >>/workspace/kept; cat /workspace/kept")))
	first := call[reply](t, base, 200, "POST", "/v1/messages", say("begin", ""))
	if kind, out := first.result(t); kind != "bash_code_execution_result" || out != "begun\n" || first.Container == nil || first.StopReason != "end_turn" {
		t.Fatalf("%+v", first)
	}
	id := first.Container.ID
	want := "one\n"
	for _, between := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"the container is killed", func() { kill(t, base.inside(id)[:1]); awaitState(t, id, proto.StateStopped) }},
		{"it is paused", func() {
			bash(t, base, id, "true")
			call[proto.Container](t, base, 200, "POST", "/v1/containers/"+id+"/pause", "")
		}},
		{"it is stopped", func() { call[proto.Container](t, base, 200, "POST", "/v1/containers/"+id+"/stop", "") }},
		{"the daemon is killed", func() { base.restart(t, syscall.SIGKILL) }},
		{"the daemon is restarted", func() { base.restart(t, syscall.SIGTERM) }},
	} {
		between.do()
		m := call[reply](t, base, 200, "POST", "/v1/messages", say("go on", id))
		want += "two\n"
		if kind, out := m.result(t); kind != "bash_code_execution_result" || out != want || m.Container == nil || m.Container.ID != id {
			t.Errorf("%s: %+v", between.name, m)
		}
	}
	asked := len(model.Requests())
	if status, out, err := base.Do("DELETE", "/v1/containers/"+id, nil); err != nil || status >= 300 {
		t.Fatalf("%d %s %v", status, out, err)
	}
	gone := call[reply](t, base, 404, "POST", "/v1/messages", say("go on", id))
	if gone.Error.Type != "not_found_error" || gone.Error.Details.ErrorCode != "container_not_found" || !strings.Contains(gone.Error.Message, id) {
		t.Errorf("%+v", gone.Error)
	}
	if n := len(model.Requests()); n != asked {
		t.Errorf("the model was asked %d times about a container that is gone", n-asked)
	}
	if err := model.Err(); err != nil {
		t.Error(err)
	}
}

// A container that dies under a command is a result that says so, and the turn goes on in it.
func TestContainerDiesInATurn(t *testing.T) {
	model := modelled(t, `{"conversations":[{"name":"c","turns":[
		{"answer":{"content":[{"type":"tool_use","name":"bash_code_execution","input":{"command":"echo kept >/workspace/f; echo $$ >/workspace/pid; sleep 100"}}]}},
		{"expect":{"last":[{"type":"tool_result"}]},"answer":{"content":[{"type":"tool_use","name":"bash_code_execution","input":{"command":"cat /workspace/f"}}]}},
		{"expect":{"last":[{"type":"tool_result","content":{"$contains":"kept"}}]},"answer":{"content":[{"type":"text","text":"done"}]}}]}]}`)
	c := create(t, base)
	answered := make(chan []byte, 1)
	go func() {
		_, out, err := base.Do("POST", "/v1/messages", strings.NewReader(say("go", c.ID)))
		if err != nil {
			t.Error(err)
		}
		answered <- out
	}()
	bash(t, base, c.ID, "until test -s /workspace/pid; do sleep 0.01; done")
	kill(t, base.inside(c.ID)[:1])
	var m reply
	if out := <-answered; json.Unmarshal(out, &m) != nil {
		t.Fatalf("%s", out)
	}
	var got []string
	for _, b := range m.Content {
		if b.Type == "bash_code_execution_tool_result" {
			got = append(got, b.Content.Type+" "+b.Content.ErrorCode+b.Content.Stdout)
		}
	}
	if want := []string{"bash_code_execution_tool_result_error unavailable", "bash_code_execution_result kept\n"}; !slices.Equal(got, want) || m.StopReason != "end_turn" {
		t.Errorf("%q %+v", got, m)
	}
	if err := model.Err(); err != nil || model.Left() > 0 {
		t.Error(err, model.Left())
	}
}

// A daemon that dies in the middle of a turn answers nothing; the container is there for whoever asks again.
func TestDaemonDiesInATurn(t *testing.T) {
	modelled(t, scripts(running("slow", "echo slow >>/workspace/runs; sleep 100"), running("look", "cat /workspace/runs")))
	c := create(t, base)
	cut := make(chan error, 1)
	go func() {
		_, _, err := base.Do("POST", "/v1/messages", strings.NewReader(say("slow", c.ID)))
		cut <- err
	}()
	bash(t, base, c.ID, "until test -s /workspace/runs; do sleep 0.01; done")
	base.restart(t, syscall.SIGKILL)
	if err := <-cut; err == nil {
		t.Error("a request outlived its daemon")
	}
	m := call[reply](t, base, 200, "POST", "/v1/messages", say("look", c.ID))
	if kind, out := m.result(t); kind != "bash_code_execution_result" || out != "slow\n" {
		t.Errorf("%+v", m)
	}
}

package native

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
	"berth/tools/bridge"
	"berth/tools/tooluse"
)

// One request per way to run something, sent twice with a key: it is done once, and the second answer says so.
func TestIdempotencyKeyOnEveryWayToRun(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	effect := func(name string) string { return "echo ran >>/workspace/" + name + "; cat /workspace/" + name }
	for i, c := range []struct {
		path   string
		body   any
		status int
		header []string
	}{
		{"/v1/containers", proto.CreateContainer{Labels: map[string]string{"a": "b"}}, 201, nil},
		{at + "/exec", proto.Cmd{Command: effect("a")}, 200, nil},
		{at + "/exec", proto.Cmd{Command: effect("b"), Background: true}, 202, nil},
		{at + "/exec", proto.Cmd{Command: effect("c")}, 200, []string{"Accept", "text/event-stream"}},
		{"/v1/exec", oneShot{Cmd: proto.Cmd{Command: effect("d")}}, 200, nil},
		{"/v1/tool_use", tooluse.Use{Type: "tool_use", ID: "t", Name: "bash",
			Input: []byte(`{"command":"` + effect("e") + `"}`)}, 200, nil},
		{at + "/tool_use", tooluse.Use{Type: "tool_use", ID: "t", Name: "bash_code_execution",
			Input: []byte(`{"command":"` + effect("f") + `"}`)}, 200, nil},
	} {
		header := append([]string{keyHeader, fmt.Sprint("key ", i)}, c.header...)
		first, one := s.do(t, "POST", c.path, c.body, header...)
		again, two := s.do(t, "POST", c.path, c.body, header...)
		if first.StatusCode != c.status || again.StatusCode != c.status {
			t.Errorf("%s: %d %d %s %s", c.path, first.StatusCode, again.StatusCode, one, two)
		}
		if first.Header.Get(replayedHeader) != "" || again.Header.Get(replayedHeader) != "true" {
			t.Errorf("%s: replayed %q, then %q", c.path, first.Header.Get(replayedHeader), again.Header.Get(
				replayedHeader))
		}
		if strings.Contains(two, "ran\\nran") || idOf(one) == "" || idOf(one) != idOf(two) {
			t.Errorf("%s:\n%s\n%s", c.path, one, two)
		}
	}
}

// idOf is the first ID of an exec, or else of a container, in an answer.
func idOf(body string) string {
	for _, prefix := range []string{"exec_", "container_"} {
		if _, rest, ok := strings.Cut(body, `"`+prefix); ok {
			id, _, _ := strings.Cut(rest, `"`)
			return prefix + id
		}
	}
	return ""
}

func TestIdempotencyKeyRefusals(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	s.do(t, "POST", at+"/exec", proto.Cmd{Command: "true"}, keyHeader, "k")
	for _, c := range []struct {
		name, path string
		body       any
		key        string
		status     int
		says       string
	}{
		{"another command", at + "/exec", proto.Cmd{Command: "false"}, "k", 409, `key \"k\"`},
		{"too long", at + "/exec", proto.Cmd{Command: "true"}, strings.Repeat("k", 256), 400, "255"},
		{"not printable", at + "/exec", proto.Cmd{Command: "true"}, "é", 400, "ASCII"},
		{"two keys", at + "/exec", proto.Cmd{Command: "true", IdempotencyKey: "x"}, "y", 400, "differ"},
		{"a key in create alone", "/v1/exec", oneShot{Cmd: proto.Cmd{Command: "true"}, Create: proto.CreateContainer{
			IdempotencyKey: "x"}}, "", 400, "create.idempotency_key"},
		{"another key in create", "/v1/exec", oneShot{Cmd: proto.Cmd{Command: "true"}, Create: proto.CreateContainer{
			IdempotencyKey: "x"}}, "y", 400, "create.idempotency_key"},
		{"the same key in create", "/v1/exec", oneShot{Cmd: proto.Cmd{Command: "true"}, Create: proto.CreateContainer{
			IdempotencyKey: "x"}}, "x", 200, ""},
		{"ephemeral", "/v1/exec", oneShot{Cmd: proto.Cmd{Command: "true"}, Ephemeral: true}, "z", 400, "ephemeral"},
		{"the editor", at + "/tool_use", tooluse.Use{Type: "tool_use", ID: "t", Name: "str_replace_based_edit_tool"},
			"e", 400, "bash tools"},
		{"another tool use", at + "/tool_use", tooluse.Use{Type: "tool_use", ID: "t", Name: "bash",
			Input: []byte(`{"command":"true"}`)}, "k", 409, `key \"k\"`},
	} {
		res, body := s.do(t, "POST", c.path, c.body, keyHeader, c.key)
		if res.StatusCode != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s", c.name, res.StatusCode, body)
		}
	}
}

// A client that counts bytes gets them exactly, from any offset and in any pieces; what is no longer kept it is told.
func TestLogsByOffset(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := must[proto.ExecResult](t, s, "POST", at+"/exec",
		proto.Cmd{Command: `for i in $(seq 20000); do printf '%05dé\n' $i; done`, MaxOutputBytes: 65536})
	var want bytes.Buffer
	for i := range 20000 {
		fmt.Fprintf(&want, "%05dé\n", i+1)
	}
	logs := at + "/execs/" + x.Exec.ID + "/logs?stream=stdout&offset="
	offset, gaps, had := int64(0), 0, int64(0)
	for rounds := 0; offset < int64(want.Len()); rounds++ {
		res, body := s.do(t, "GET", logs+strconv.FormatInt(offset, 10), nil)
		if res.StatusCode != 200 || rounds > 10 {
			t.Fatalf("%d %.200s", res.StatusCode, body)
		}
		if start := res.Header.Get(logStart); start != "" {
			gaps++
			offset, _ = strconv.ParseInt(start, 10, 64)
		}
		if !bytes.HasPrefix(want.Bytes()[offset:], []byte(body)) {
			t.Fatalf("from %d other bytes than were written", offset)
		}
		offset += int64(len(body))
		had += int64(len(body))
	}
	if gaps != 1 || had < 60000 || had > 200000 {
		t.Errorf("%d bytes, %d gaps", had, gaps)
	}
	for query, status := range map[string]int{
		logs + strconv.Itoa(want.Len()): 200, logs + strconv.Itoa(want.Len()+1): 416, logs + "-1": 400,
		logs + "1&follow=true": 200, logs + "x": 400,
		at + "/execs/" + x.Exec.ID + "/logs?offset=1": 400, at + "/execs/" + x.Exec.ID + "/logs?offset=0": 400,
		at + "/execs/" + x.Exec.ID + "/logs?stream=both&offset=0":     400,
		at + "/execs/" + x.Exec.ID + "/events?stdout_offset=99999999": 400,
	} {
		if res, body := s.do(t, "GET", query, nil); res.StatusCode != status {
			t.Errorf("%s: %d %.200s", query, res.StatusCode, body)
		}
	}
	if res, _ := s.do(t, "GET", at+"/execs/"+x.Exec.ID+"/events", nil, "Last-Event-ID",
		"99999999-0"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("an event that never was: %d", res.StatusCode)
	}
}

// A gate holds the first command back that asks whether it may run, until open is closed.
type gate struct {
	session.Quotas
	first         sync.Once
	arrived, open chan struct{}
}

func (g *gate) MayRun(key string) error {
	g.first.Do(func() { close(g.arrived); <-g.open })
	return g.Quotas.MayRun(key)
}

// gatedSite is a site whose first command waits at a gate, when its container is there.
func gatedSite(t *testing.T) (*site, *gate) {
	t.Helper()
	g := &gate{arrived: make(chan struct{}), open: make(chan struct{})}
	stack := sessiontest.OverWith(t, sessiontest.NewRuntime(t), sessiontest.Images{}, session.Config{},
		func(st *sessiontest.Stack, cfg *session.Config) {
			st.Bridge = bridge.Open(bridge.Config{Ledger: st.Ledger, Log: cfg.Log})
			cfg.Tools, g.Quotas = st.Bridge, cfg.Quotas
			cfg.Quotas = g
		})
	return siteOver(t, stack, session.Config{}, func(*Config) {}), g
}

// A client that goes away before the answer finds what it began by its key: the container is not taken away from
// under the command, neither while that starts nor when it runs, and so it is not done twice. Without a key its
// output is there to be asked for.
func TestRequestWithoutContainerWhoseClientLeft(t *testing.T) {
	const command = "echo ran >>/workspace/n; until test -e /workspace/go; do sleep 0.01; done; cat /workspace/n"
	use := tooluse.Use{Type: "tool_use", ID: "t", Name: "bash_code_execution", Input: []byte(`{"command":"` + command +
		`"}`)}
	for _, c := range []struct {
		name, path string
		body       any
		key        string
		runs       bool // when the client leaves
	}{
		{"exec, starting", "/v1/exec", oneShot{Cmd: proto.Cmd{Command: command}}, "k", false},
		{"exec, running", "/v1/exec", oneShot{Cmd: proto.Cmd{Command: command}}, "k", true},
		{"tool use, starting", "/v1/tool_use", use, "k", false},
		{"tool use, running", "/v1/tool_use", use, "k", true},
		{"tool use without a key, running", "/v1/tool_use", use, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, g := gatedSite(t)
			ctx, cancel := context.WithCancel(t.Context())
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				if res, err := s.client.Do(s.request(t, ctx, "POST", c.path, c.body, keyHeader, c.key)); err == nil {
					res.Body.Close()
				}
			}()
			<-g.arrived
			made, _, err := s.Sessions.List(sessiontest.Owner, session.Filter{})
			if err != nil || len(made) != 1 {
				t.Fatalf("%+v %v", made, err)
			}
			box, err := s.Sessions.Get(sessiontest.Owner, made[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			if c.runs {
				close(g.open)
				if _, _, err := box.NextExecs(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			<-answered
			s.done.wait()
			if !c.runs {
				close(g.open)
			}
			at := "/v1/containers/" + box.ID()
			if c.key == "" {
				if list := must[page[proto.Exec]](t, s, "GET", at+"/execs", nil).Data; len(list) != 1 ||
					s.ended(t, at, list[0].ID).Exec.End.Reason != proto.EndCanceled {
					t.Errorf("%+v", list)
				}
				return
			}
			must[proto.FileInfo](t, s, "PUT", at+"/fs/content?path=/workspace/go", "")
			res, body := s.do(t, "POST", c.path, c.body, keyHeader, c.key)
			if res.StatusCode != 200 || res.Header.Get(replayedHeader) != "true" || !strings.Contains(body, box.ID()) ||
				strings.Count(body, `ran\n`) != 1 {
				t.Errorf("%d replayed %q %s", res.StatusCode, res.Header.Get(replayedHeader), body)
			}
		})
	}
}

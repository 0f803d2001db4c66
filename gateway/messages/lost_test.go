package messages_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/gateway/upstream"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// A request whose upstream does not answer leaves no container, although one was made for its files.
func TestNoContainerIsLeftOfAnUpstreamThatIsDown(t *testing.T) {
	refuse := func(status int) string {
		return fmt.Sprintf(`{"turns": [{"answer": {"error": {"status": %d, "type": "api_error", "message": "no"}}}]}`, status)
	}
	for name, c := range map[string]struct {
		script string
		status int
	}{
		"nothing listens":      {"", 529},
		"refused":              {refuse(400), 400},
		"wrong key":            {refuse(401), 401},
		"too many":             {refuse(429), 429},
		"overloaded":           {refuse(529), 529},
		"the connection broke": {`{"turns": [{"answer": {"content": [{"type": "text", "text": "one two"}], "cut": {"by": "break"}}}]}`, 0},
		"an error event":       {`{"turns": [{"answer": {"content": [{"type": "text", "text": "one two"}], "cut": {"after_events": 3, "by": "error"}}}]}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				script := c.script
				if script == "" {
					script = refuse(400)
				}
				s := newSite(t, script, func(cfg *config) {
					if c.script != "" {
						return
					}
					set, err := upstream.Open([]upstream.Config{{URL: "http://127.0.0.1:1"}}, nil)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { set.Close() })
					cfg.Upstreams = set
				})
				req := body(bash, "", "stream", stream)
				req["messages"] = []any{map[string]any{"role": "user", "content": []any{map[string]any{
					"type": "container_upload", "file_id": s.upload("a.csv", "1\n")}}}}
				for _, header := range [][]string{nil, {"X-Stainless-Retry-Count", "1"}, {"Idempotency-Key", "k"}} {
					r := s.send(encode(t, req), header...)
					if r.msg.Error == nil || c.status != 0 && r.status != c.status && len(s.model.Requests()) < 2 {
						t.Errorf("%d %s", r.status, r.body)
					}
					s.none()
				}
			})
		})
	}
}

// A client that leaves before anything is done leaves no container.
func TestNoContainerIsLeftOfAClientThatLeft(t *testing.T) {
	s := newSite(t, `{"turns": [{"answer": {"pauses": [{"until": "never"}], "content": [{"type": "text", "text": "never"}]}}]}`)
	s.leaveWhen(s.withUpload(), func(*session.Session) { <-s.model.Reached("never") })
	within(t, 20*time.Second, "no container", func() bool { return len(s.containers()) == 0 })
}

// If a container goes in the middle of a turn, the rest of the turn goes on in a new one, with its files. The next
// result says so, and the answer names the new container.
func TestTurnGoesOnInANewContainer(t *testing.T) {
	for name, c := range map[string]struct {
		limits session.Config
		end    func(s *site, c *session.Session)
	}{
		"deleted": {end: func(s *site, c *session.Session) {
			if err := s.Sessions.Delete(s.t.Context(), sessiontest.Owner, c.ID(), false); err != nil {
				s.t.Error(err)
			}
		}},
		"expired": {limits: session.Config{MaxLifetime: 6 * time.Second}, end: func(s *site, c *session.Session) {
			within(s.t, time.Minute, "its time is over", func() bool {
				_, err := s.Sessions.Sweep(s.t.Context())
				_, gone := s.Sessions.Get(sessiontest.Owner, c.ID())
				return err == nil && gone != nil
			})
		}},
	} {
		for _, tool := range []string{
			`"name": "bash_code_execution", "input": {"command": "ls /workspace; cat \"$INPUT_DIR/a.csv\""}`,
			`"name": "code_execution", "input": {"code": "import os; print('\\n'.join(os.listdir('/workspace'))); print(open(os.environ['INPUT_DIR'] + '/a.csv').read(), end='')"}`,
		} {
			t.Run(name, func(t *testing.T) {
				both(t, func(t *testing.T, stream bool) {
					s := newSiteOver(t, c.limits, `{"plain": true, "turns": [
						{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "touch /workspace/old; sleep 1000"}}]}},
						{"expect": {"last": [{"is_error": true, "content": {"$contains": "unavailable"}}]}, "answer": {"content": [{"type": "tool_use", `+tool+`}]}},
						{"expect": {"last": [{"content": {"$match": "inputs(?s:.*)1\n(?s:.*)is gone"}}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
					req := body(repl, "", "stream", stream)
					req["messages"] = []any{map[string]any{"role": "user", "content": []any{map[string]any{
						"type": "container_upload", "file_id": s.upload("a.csv", "1\n")}}}}
					var old string
					var ending sync.WaitGroup
					t.Cleanup(ending.Wait)
					ending.Go(func() {
						box := s.only()
						old = box.ID()
						within(s.t, time.Minute, "a command", func() bool { return box.Info().RunningExecs == 1 })
						c.end(s, box)
					})
					m := s.ask(req).msg
					s.played()
					if m.Container == nil || m.Container.ID == old {
						t.Fatalf("%+v", m)
					}
					r := m.result(t, 3)
					if stderr, _ := r["stderr"].(string); !strings.Contains(stderr, old+" is gone") ||
						!strings.Contains(stderr, m.Container.ID) || strings.Contains(r["stdout"].(string), "old") {
						t.Errorf("%v", r)
					}
				})
			})
		}
	}
}

// The container of a request may name a runtime class and limits. A container that replaces one that has gone is
// confined like that one, also if the request named it by its ID.
func TestConfinementOfATurnsContainer(t *testing.T) {
	const script = `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "sleep 1000"}}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "true"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`
	for name, named := range map[string]bool{"by the request": false, "by the container that it names": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, script)
			asked := map[string]any{"runtime_class": "gvisor", "limits": map[string]any{"pids": 64}}
			req := body(bash, "go", "container", asked)
			if named {
				req["container"] = s.Create(t, proto.CreateContainer{RuntimeClass: proto.ClassGVisor,
					Limits: proto.Limits{PIDs: 64}}).ID()
			}
			go func() {
				box := s.only()
				within(s.t, 20*time.Second, "a command", func() bool { return box.Info().RunningExecs == 1 })
				if err := s.Sessions.Delete(s.t.Context(), sessiontest.Owner, box.ID(), false); err != nil {
					s.t.Error(err)
				}
			}()
			s.ask(req)
			s.played()
			all := s.Runtime.(*sessiontest.Runtime).Started()
			if len(all) != 2 {
				t.Fatalf("%d containers", len(all))
			}
			for i, got := range all {
				if got.Class != proto.ClassGVisor || got.Limits.PIDs != 64 {
					t.Errorf("container %d was started as %s %+v", i, got.Class, got.Limits)
				}
			}
		})
	}
}

// A confinement that no container can have is an error of the request, before the model is asked.
func TestConfinementThatIsRefused(t *testing.T) {
	s := newSite(t, `{"turns": [{"answer": {"content": [{"type": "text", "text": "never"}]}}]}`)
	id := s.Create(t, proto.CreateContainer{}).ID()
	for field, container := range map[string]any{
		"container.runtime_class":              map[string]any{"runtime_class": "vm"},
		"container.runtime_class ":             map[string]any{"runtime_class": 1},
		"container.limits":                     map[string]any{"limits": map[string]any{"cpu": 1}},
		"container.limits.disk_bytes must be":  map[string]any{"limits": map[string]any{"disk_bytes": 0}},
		"container.limits.pids":                map[string]any{"limits": map[string]any{"pids": 1}},
		"container.runtime_class is for a new": map[string]any{"id": id, "runtime_class": "runc"},
		"container.limits are for a new":       map[string]any{"id": id, "limits": map[string]any{"pids": 64}},
	} {
		if r := s.send(encode(t, body(bash, "go", "container", container))); r.status != 400 ||
			!strings.Contains(string(r.body), strings.TrimSpace(field)) {
			t.Errorf("%s: %d %s", field, r.status, r.body)
		}
	}
	if n := len(s.model.Requests()); n > 0 {
		t.Errorf("the model was asked %d times", n)
	}
}

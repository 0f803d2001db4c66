package messages_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// meet returns a command that ends well only if the other one runs at the same time.
func meet(own, other string) string {
	return fmt.Sprintf("touch /workspace/%[1]s; for i in $(seq 1000); do test -e /workspace/%[2]s && exec echo %[1]s met %[2]s; sleep 0.02; done; exit 1",
		own, other)
}

// meetInPython is meet in Python.
func meetInPython(own, other string) string {
	return fmt.Sprintf("import os, sys, time\nopen('/workspace/%[1]s', 'w')\nfor i in range(1000):\n    if os.path.exists('/workspace/%[2]s'): break\n    time.sleep(0.02)\nelse:\n    sys.exit(1)\nprint('%[1]s met %[2]s')",
		own, other)
}

// use returns a call by the model in a script.
func use(name, member, value string) string {
	text, _ := json.Marshal(value) // cannot fail: a string
	return fmt.Sprintf(`{"type": "tool_use", "name": "%s", "input": {"%s": %s}}`, name, member, text)
}

// Calls that the model sends together run at the same time. Their results come in order.
func TestParallelCalls(t *testing.T) {
	const sh, py = "bash_code_execution", "code_execution"
	for name, c := range map[string]struct {
		tool  string
		calls []string
		want  []string
	}{
		"commands": {bash, []string{use(sh, "command", meet("a", "b")), use(sh, "command", meet("b", "c")),
			use(sh, "command", meet("c", "a"))}, []string{"a met b\n", "b met c\n", "c met a\n"}},
		"the second ends first": {bash, []string{use(sh, "command", "until test -e /workspace/z; do sleep 0.02; done; echo late"),
			use(sh, "command", "touch /workspace/z; echo early")}, []string{"late\n", "early\n"}},
		"a command and Python": {repl, []string{use(py, "code", meetInPython("a", "b")), use(sh, "command", meet("b", "a"))},
			[]string{"a met b\n", "b met a\n"}},
		"programs": {"code_execution_20250522", []string{use(py, "code", meetInPython("a", "b")), use(py, "code", meetInPython("b", "a"))},
			[]string{"a met b\n", "b met a\n"}},
		"Python in order": {repl, []string{use(py, "code", "x = 1"), use(py, "code", "x += 1; print(x)"), use(py, "code", "print(x + 1)")},
			[]string{"", "2\n", "3\n"}},
		"more than run at the same time": {bash, many(40, use(sh, "command", "echo x")), many(40, "x\n")},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				s := newSite(t, `{"plain": true, "turns": [{"answer": {"content": [`+strings.Join(c.calls, ",")+
					`]}}, {"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
				m := s.ask(body(c.tool, "go", "stream", stream)).msg
				s.played()
				for i, want := range c.want {
					at := len(c.calls) + i
					if r := m.result(t, at); r["stdout"] != want || r["return_code"] != 0.0 ||
						m.Content[at]["tool_use_id"] != m.Content[i]["id"] {
						t.Errorf("%d: %v", i, r)
					}
				}
			})
		})
	}
}

func many(n int, s string) (list []string) {
	for range n {
		list = append(list, s)
	}
	return list
}

// If the client leaves while calls run at the same time, a retry runs none of them twice, and gets the results of
// those that have ended.
func TestClientLeavesParallelCalls(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [{"answer": {"content": [`+
			use("bash_code_execution", "command", "echo x >>/workspace/m; sleep 1000")+`,`+
			use("bash_code_execution", "command", "echo x >>/workspace/k; echo ended")+`,`+
			use("code_execution", "code", "open('/workspace/n', 'a').write('x')\nprint('python ended')")+
			`]}}, {"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
		sent := encode(t, body(repl, "go", "stream", stream))
		c := s.leaveWhen(sent, func(c *session.Session) {
			within(t, 20*time.Second, "the end of the second command", func() bool {
				for _, name := range []string{"m", "k", "n"} {
					fi, err := c.Stat(t.Context(), proto.UserDefault, "/workspace/"+name)
					if err != nil || fi.SizeBytes == 0 {
						return false
					}
				}
				return c.Info().RunningExecs == 1 // the first; the interpreter does not count
			})
		})
		m := s.send(sent, "X-Stainless-Retry-Count", "1").msg
		s.played()
		if m.Container == nil || m.Container.ID != c.ID() || m.result(t, 3)["error_code"] != "unavailable" {
			t.Fatalf("%+v", m)
		}
		if out := sessiontest.Bash(t, c, "cat /workspace/[kmn]"); out.Stdout != "x\nx\nx" {
			t.Errorf("the calls ran as often as this says: %q", out.Stdout)
		}
		if m.result(t, 4)["stdout"] != "ended\n" {
			t.Errorf("%v", m.result(t, 4))
		}
	})
}

// A container that ends under calls that run at the same time ends all of them. The next ones have another.
func TestContainerOfParallelCallsIsDeleted(t *testing.T) {
	wait := use("bash_code_execution", "command", "touch /workspace/$$; sleep 1000")
	s := newSite(t, `{"plain": true, "turns": [{"answer": {"content": [`+wait+`,`+wait+`,`+wait+`]}},
		{"answer": {"content": [`+use("bash_code_execution", "command", "echo one")+`,`+use("bash_code_execution", "command", "echo two")+`]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	go func() {
		c := s.only()
		within(s.t, 20*time.Second, "three commands", func() bool { return c.Info().RunningExecs == 3 })
		if err := s.Sessions.Delete(s.t.Context(), sessiontest.Owner, c.ID(), false); err != nil {
			s.t.Error(err)
		}
	}()
	m := s.ask(body(bash, "go")).msg
	s.played()
	for i := 3; i < 6; i++ {
		if m.result(t, i)["error_code"] != "unavailable" {
			t.Errorf("%v", m.result(t, i))
		}
	}
	first, second := m.result(t, 8), m.result(t, 9)
	if first["stdout"] != "one\n" || !strings.Contains(first["stderr"].(string), "is gone") || second["stdout"] != "two\n" ||
		second["stderr"] != "" || m.Container == nil || s.only().ID() != m.Container.ID {
		t.Errorf("%v %v", first, second)
	}
}

package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
)

// until reads an exec's standard output until it contains text, and returns it.
func (s *server) until(t *testing.T, at, text string) string {
	t.Helper()
	req, err := http.NewRequest("GET", s.URL+at+"/logs?stream=stdout&offset=0&follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", s.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got strings.Builder
	for b := make([]byte, 4096); !strings.Contains(got.String(), text); {
		n, err := res.Body.Read(b)
		got.Write(b[:n])
		if err == io.EOF && n == 0 {
			t.Fatalf("it ended without %q: %d bytes", text, got.Len())
		} else if err != nil && err != io.EOF {
			t.Fatal(err)
		}
	}
	return got.String()
}

func (s *server) restart(t *testing.T, sig syscall.Signal) {
	t.Helper()
	s.Stop(sig)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
}

// TestExecsOutliveTheDaemon checks that durable commands survive the daemon's end, killed or not, in every class. No
// line is lost or repeated, nothing runs twice, and commands that ended meanwhile are reported correctly.
func TestExecsOutliveTheDaemon(t *testing.T) {
	s := base
	defer func(flags []string) { s.Flags = flags; s.restart(t, syscall.SIGKILL) }(s.Flags)
	// --stop-on-exit would end them
	s.Flags = slices.DeleteFunc(slices.Clone(s.Flags), func(f string) bool { return f == "--stop-on-exit" })
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) {
			c := call[proto.Container](t, s, 201, "POST", "/v1/containers",
				fmt.Sprintf(`{"runtime_class":%q,"limits":{"memory_bytes":536870912,"disk_bytes":268435456}}`, class))
			t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
			at := "/v1/containers/" + c.ID
			launch := func(cmd proto.Cmd) string {
				cmd.Background = true
				body, _ := json.Marshal(cmd)
				return at + "/execs/" + call[proto.Exec](t, s, 202, "POST", at+"/exec", string(body)).ID
			}
			counting := launch(proto.Cmd{
				Command:        `n=0; until test -e /workspace/stop; do n=$((n+1)); echo "$n"; done; exit 7`,
				MaxOutputBytes: 16 << 20, TimeoutSeconds: 600})
			ends := launch(
				proto.Cmd{
					Command: `echo begun; until test -e /workspace/go; do sleep 0.01; done; seq 100000 | sort | tail -1; exit 5`})
			s.until(t, counting, "\n10\n")
			s.until(t, ends, "begun")

			key := `{"command":"echo ran >>/workspace/effects; until test -e /workspace/key; do sleep 0.01; done; cat /workspace/effects","idempotency_key":"k"}`
			cut := make(chan error, 1)
			go func() {
				_, _, err := s.Do("POST", at+"/exec", strings.NewReader(key))
				cut <- err
			}()
			bash(t, s, c.ID, "until test -s /workspace/effects; do sleep 0.01; done")
			// a background process that ends without a daemon, or just after its start
			bash(t, s, c.ID, "(sleep 1; touch /workspace/go) >/dev/null 2>&1 & sleep 0.1")
			s.restart(t, syscall.SIGKILL)
			if err := <-cut; err == nil {
				t.Error("a request outlived its daemon")
			}
			s.restart(t, syscall.SIGTERM)

			bash(t, s, c.ID, "touch /workspace/key /workspace/stop")
			again := call[proto.ExecResult](t, s, 200, "POST", at+"/exec", key)
			if again.Result.Result == nil || again.Result.Result.Stdout != "ran\n" {
				t.Errorf("the keyed command: %+v %+v", again.Exec.End, again.Result.Result)
			}
			s.restart(t, syscall.SIGKILL)
			if stored := call[proto.ExecResult](t, s, 200, "POST", at+"/exec", key); stored.Exec.ID != again.Exec.ID ||
				stored.Result.Result.Stdout != "ran\n" {
				t.Errorf("the keyed command after its end: %+v", stored)
			}
			res := call[proto.ExecResult](t, s, 200, "GET", counting+"/result?wait_seconds=60", "")
			if res.Exec.End == nil || res.Exec.End.Reason != proto.EndExit || res.Exec.End.ReturnCode != 7 ||
				res.Result.Result == nil {
				t.Fatalf("the counting one: %+v", res.Exec)
			}
			inOrder(t, res)
			res = call[proto.ExecResult](t, s, 200, "GET", ends+"/result?wait_seconds=60", "")
			if end := res.Exec.End; end == nil || end.ReturnCode != 5 || end.CPUSeconds <= 0 || end.PeakBytes == 0 ||
				res.Result.Result.Stdout != "begun\n99999\n" {
				t.Errorf("the one that ended meanwhile: %+v %+v", res.Exec.End, res.Result.Result)
			}
		})
	}
}

// TestEndsAreToldUnasked checks that the next daemon learns the end of a surviving command without any request for
// the command or its container.
func TestEndsAreToldUnasked(t *testing.T) {
	s := base
	defer func(flags []string) { s.Flags = flags; s.restart(t, syscall.SIGKILL) }(s.Flags)
	// a sweep would find the end too
	s.Flags = append(slices.DeleteFunc(slices.Clone(s.Flags), func(f string) bool { return f == "--stop-on-exit" }),
		"--sweep-every=1h")
	c := createClass(t, s, proto.ClassRunc)
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	at := "/v1/containers/" + c.ID
	x := call[proto.Exec](t, s, 202, "POST", at+"/exec",
		`{"command":"echo begun; until test -e /workspace/go; do sleep 0.01; done; exit 9","background":true}`)
	s.until(t, at+"/execs/"+x.ID, "begun")
	bash(t, s, c.ID, "(sleep 1; touch /workspace/go) >/dev/null 2>&1 & sleep 0.1") // a background process
	s.restart(t, syscall.SIGKILL)
	eventually(t, "the audit log tells the end of a command that nobody asks for", func() bool {
		status, log, err := s.Do("GET", "/v1/audit", nil)
		if err != nil || status != 200 {
			t.Fatalf("the audit log: %d %.200s %v", status, log, err)
		}
		for line := range bytes.Lines(log) {
			if bytes.Contains(line, []byte(x.ID)) && bytes.Contains(line, []byte(`"exec.end"`)) {
				return true
			}
		}
		return false
	})
}

// inOrder fails the test unless the output counts from 1 without a gap, except reported gaps.
func inOrder(t *testing.T, res proto.ExecResult) {
	t.Helper()
	head, tail, cut := strings.Cut(res.Result.Result.Stdout, "\n[output truncated: ")
	want := 1
	for _, line := range strings.Split(strings.TrimSuffix(head, "\n"), "\n") {
		if line != fmt.Sprint(want) && !cut {
			t.Fatalf("line %d is %.40q", want, line)
		}
		want++
	}
	if want < 10 || cut != res.Exec.Truncated || cut && tail == "" {
		t.Errorf("%d lines, truncated %v", want, res.Exec.Truncated)
	}
}

package daemon_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"berth/proto"

	"github.com/creack/pty"
)

// onTerminal starts `berth` on a terminal of its own.
func onTerminal(t *testing.T, s *server, args ...string) (*program, *os.File) {
	t.Helper()
	p := berthProgram(t, s, args...)
	p.Stdout, p.Stderr = nil, nil // the terminal
	terminal, err := pty.Start(p.Cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	go func() { _, _ = io.Copy(p, terminal) }() // ends with the program
	return p, terminal
}

// TestClientsBeginAnew kills the daemon under a build, a pull, two terminals and a forwarded port. The build and the
// pull begin anew, the terminals go on, and a connection that is made while the daemon is away waits for it.
func TestClientsBeginAnew(t *testing.T) {
	s := pinned(t)
	c := create(t, s)
	web := call[proto.Exec](t, s, 202, "POST", "/v1/containers/"+c.ID+"/exec",
		`{"command":"cd /workspace; echo served >f; exec python3 -u -m http.server 8000","background":true}`)
	s.until(t, "/v1/containers/"+c.ID+"/execs/"+web.ID, "Serving")

	var asked atomic.Int32 // times that the registry was asked
	first := make(chan struct{})
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			close(first)
			<-r.Context().Done() // until the daemon is killed
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer registry.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"),
		[]byte("FROM base\nRUN --mount=type=cache,target=/c if mkdir /c/begun; then echo it-runs; sleep 1000; fi; "+
			"echo built >/tmp/built\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	shell, keys := onTerminal(t, s, "exec", "-it", c.ID, "bash", "--norc")
	fmt.Fprint(keys, "echo be'gun'\r")
	shell.prints(t, "begun")
	attached, more := onTerminal(t, s, "attach", c.ID)
	attached.prints(t, "begun")
	forward := cli(t, s, "forward", c.ID, "0:8000")
	forward.prints(t, "-> port 8000")
	local := regexp.MustCompile(`\S+`).FindString(forward.text())
	pull := berthProgram(t, s, "image", "pull", strings.TrimPrefix(registry.URL, "http://")+"/none:1")
	build := berthProgram(t, s, "image", "build", "-t", "anew", dir)
	for _, p := range []*program{pull, build} {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	build.prints(t, "it-runs")
	<-first

	s.Stop(syscall.SIGKILL)
	answered := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + local + "/f")
		if err != nil {
			answered <- err.Error()
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		answered <- string(text)
	}()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got != "served\n" {
		t.Errorf("through the forwarded port came %q", got)
	}
	if err := pull.Wait(); err == nil || asked.Load() < 2 || !strings.Contains(pull.text(), "none:1") {
		t.Errorf("the pull: %v, the registry was asked %d times; %s", err, asked.Load(), pull.text())
	}
	if err := build.Wait(); err != nil || !strings.HasSuffix(build.text(), "\nanew\n") {
		t.Errorf("the build: %v, %s", err, build.text())
	}
	// Keys that are typed while the connection is broken are lost, so they are typed until they come through.
	eventually(t, "the terminals go on", func() bool {
		fmt.Fprint(keys, "echo first-$((40+2))\r")
		fmt.Fprint(more, "echo second-$((40+2))\r")
		return strings.Contains(shell.text(), "second-42") && strings.Contains(attached.text(), "first-42")
	})
	fmt.Fprint(keys, "exit 7\r")
	for _, p := range []*program{shell, attached} {
		if _ = p.Wait(); p.ProcessState.ExitCode() != 7 {
			t.Errorf("%v ended with %d: %s", p.Args[1:], p.ProcessState.ExitCode(), p.text())
		}
	}
	_ = forward.Process.Kill()
	_ = forward.Wait()
	base.raw(t, "DELETE", "/v1/images?ref=anew", nil)
}

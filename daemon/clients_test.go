package daemon_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"
)

// A program is a run of `berth` whose output can be awaited.
type program struct {
	*exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// cli starts `berth` against the daemon. Its standard error is the test's.
func cli(t *testing.T, s *server, args ...string) *program {
	t.Helper()
	bin, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.CommandContext(t.Context(), bin, args...)}
	p.Env = append(os.Environ(), "BERTH_HOST="+s.URL, "BERTH_API_KEY="+s.Key)
	p.Stdout, p.Stderr = p, os.Stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// prints waits until the program has printed text.
func (p *program) prints(t *testing.T, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v prints %q", p.Args[1:], text),
		func() bool { return strings.Contains(p.text(), text) })
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// connected returns the kernel's number of connections to the port.
func connected(t *testing.T, port int) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "01" {
			n++
		}
	}
	return n
}

// TestClientsOutliveTheDaemon checks that client commands that wait for a command survive a killed or restarted
// daemon. `logs -f` and `exec` with a key lose and repeat no byte, and `wait` gets the return code. The same key
// later finds the same run.
func TestClientsOutliveTheDaemon(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	s := base
	defer func(flags []string) { s.Flags = flags; s.restart(t, syscall.SIGKILL) }(s.Flags)
	s.Flags = append(slices.DeleteFunc(slices.Clone(s.Flags), func(f string) bool { return f == "--stop-on-exit" }),
		fmt.Sprintf("--listen=127.0.0.1:%d", port))
	s.restart(t, syscall.SIGKILL)

	c := create(t, s)
	run := []string{"exec", "-q", "--idempotency-key", "once", "-c",
		`echo once >>/workspace/ran; for i in 1 2 3; do echo "line $i"; until test -e /workspace/$i; do sleep 0.02; done; done; echo end; exit 3`, c.ID}
	keyed := cli(t, s, run...)
	keyed.prints(t, "line 1\n")
	x := call[struct{ Data []proto.Exec }](t, s, 200, "GET", "/v1/containers/"+c.ID+"/execs", "").Data[0]
	logs := cli(t, s, "logs", "-f", c.ID, x.ID)
	logs.prints(t, "line 1\n")
	before := connected(t, port)
	wait := cli(t, s, "wait", c.ID, x.ID)
	eventually(t, "berth wait is connected", func() bool { return connected(t, port) > before })

	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		s.restart(t, sig)
		bash(t, s, c.ID, fmt.Sprintf("touch /workspace/%d", i+1))
		keyed.prints(t, fmt.Sprintf("line %d\n", i+2))
		logs.prints(t, fmt.Sprintf("line %d\n", i+2))
	}
	bash(t, s, c.ID, "touch /workspace/3")
	const whole = "line 1\nline 2\nline 3\nend\n"
	for _, p := range []struct {
		*program
		status int
		out    string
	}{{keyed, 3, whole}, {logs, 0, whole}, {wait, 0, "3\n"}, {cli(t, s, run...), 3, whole}} {
		err, code := p.Wait(), 0
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if code != p.status || p.text() != p.out {
			t.Errorf("%v: status %d, %q", p.Args[1:], code, p.text())
		}
	}
	if res := bash(t, s, c.ID, "cat /workspace/ran"); res.Result.Result.Stdout != "once\n" {
		t.Errorf("it ran as often as this says: %q", res.Result.Result.Stdout)
	}
}

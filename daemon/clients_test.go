package daemon_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/client"
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
	p := berthProgram(t, s, args...)
	p.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// berthProgram returns `berth` against the daemon, which is not started. Both outputs are kept.
func berthProgram(t *testing.T, s *server, args ...string) *program {
	t.Helper()
	bin, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.CommandContext(t.Context(), bin, args...)}
	p.Env = append(os.Environ(), "BERTH_HOST="+s.URL, "BERTH_API_KEY="+s.Key)
	p.Stdout, p.Stderr = p, p
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
	s := pinned(t)
	port := s.port(t)
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

// TestCommandsWithoutKeyOutliveTheDaemon checks that commands of `exec`, `run` and Client.Run that were given no key go
// on over a killed and a restarted daemon: each runs once, no byte of output is lost or comes twice, not of a command
// that prints without pause either, and the status is the command's. A command whose client is killed ends.
func TestCommandsWithoutKeyOutliveTheDaemon(t *testing.T) {
	s := pinned(t)
	c := create(t, s)
	steps := `echo once >>/workspace/NAME.ran; echo begun; until test -e /workspace/go; do sleep 0.02; done; echo end >&2; exit 3`
	named := func(name string) string { return strings.ReplaceAll(steps, "NAME", name) }
	plain := cli(t, s, "exec", "-q", "-c", named("plain"), c.ID)
	shell := cli(t, s, "exec", "-q", "--shell", "main", "-c", `echo begun; until test -e /workspace/go; do sleep 0.02; done; (exit 4)`, c.ID)
	ran := cli(t, s, "run", "-q", "--name", "outlives-the-daemon", "-c", named("run"))
	chatty := cli(t, s, "exec", "-q", "-c", `for ((i = 0; ; i++)); do echo $i; if ((i % 1000 == 0)) && test -e /workspace/go; then exit 5; fi; done`, c.ID)
	lost := cli(t, s, "exec", "-q", "-c", "echo begun; sleep 1000", c.ID)
	lib, err := client.New(client.Config{Host: s.URL, Key: s.Key, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		proto.ExecResult
		error
	}
	answer := make(chan outcome, 1)
	go func() {
		res, err := lib.Run(t.Context(), c.ID, proto.Cmd{Command: named("lib")})
		answer <- outcome{res, err}
	}()
	eventually(t, "the library's command runs", func() bool {
		return bash(t, s, c.ID, "cat /workspace/lib.ran").Result.Result.Stdout == "once\n"
	})
	for _, p := range []*program{plain, shell, ran, lost} {
		p.prints(t, "begun\n")
	}
	chatty.prints(t, "1000\n")
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		s.restart(t, sig)
		shown := len(chatty.text())
		eventually(t, "output comes", func() bool { return len(chatty.text()) > shown })
	}
	_ = lost.Process.Kill()
	_ = lost.Wait()
	for _, id := range []string{c.ID, "outlives-the-daemon"} {
		bash(t, s, id, "touch /workspace/go")
	}
	status := func(p *program) int {
		_ = p.Wait()
		return p.ProcessState.ExitCode()
	}
	for _, p := range []struct {
		*program
		status int
		out    string
	}{{plain, 3, "begun\n"}, {ran, 3, "begun\n"}, {shell, 4, "begun\n"}} {
		if code := status(p.program); code != p.status || p.text() != p.out {
			t.Errorf("%v: status %d, %q", p.Args[1:], code, p.text())
		}
	}
	if code := status(chatty); code != 5 {
		t.Errorf("the command that prints without pause: status %d", code)
	}
	next := 0
	for line := range strings.Lines(chatty.text()) {
		if line != strconv.Itoa(next)+"\n" {
			t.Fatalf("%q comes where %d should", line, next)
		}
		next++
	}
	if res := <-answer; res.error != nil || res.Exec.End.ReturnCode != 3 || res.Result.Result.Stdout != "begun\n" ||
		res.Result.Result.Stderr != "end\n" {
		t.Errorf("Client.Run: %v, %+v", res.error, res.Result)
	}
	if got := bash(t, s, c.ID, "cat /workspace/*.ran").Result.Result.Stdout; got != "once\nonce\n" {
		t.Errorf("the two ran as often as this says: %q", got)
	}
	eventually(t, "the command without a client ends", func() bool {
		for _, x := range call[struct{ Data []proto.Exec }](t, s, 200, "GET", "/v1/containers/"+c.ID+"/execs", "").Data {
			if strings.Contains(x.Command, "sleep 1000") {
				return x.End != nil && x.End.Reason == proto.EndCanceled
			}
		}
		return false
	})
	call[any](t, s, 200, "DELETE", "/v1/containers/outlives-the-daemon", "")
}

// TestCodeBeginsAnew checks that code in a container of its own, which is gone with its daemon, begins anew with the next
// one, and that code in a container of the user's fails, since it may have done something there.
func TestCodeBeginsAnew(t *testing.T) {
	s := pinned(t)
	c := create(t, s)
	const code = `import os, time
open("/workspace/begun", "w").close()
while not os.path.exists("/workspace/go"):
    time.sleep(0.02)
print("done")`
	fresh, named := cli(t, s, "code", "-c", code), cli(t, s, "code", "-c", code, c.ID)
	in := "" // the container of the fresh code
	runs := func() bool {
		for _, con := range call[struct{ Data []proto.Container }](t, s, 200, "GET", "/v1/containers", "").Data {
			// one that is being deleted answers something else
			_, answer, _ := s.Do("POST", "/v1/containers/"+con.ID+"/exec",
				strings.NewReader(`{"command":"test -e /workspace/begun && echo here"}`))
			if con.ID != c.ID && bytes.Contains(answer, []byte(`"stdout":"here`)) {
				in = con.ID
				return true
			}
		}
		return false
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		eventually(t, "the code runs", runs)
		s.restart(t, sig)
	}
	eventually(t, "the code runs again", runs)
	bash(t, s, in, "touch /workspace/go")
	if err := fresh.Wait(); err != nil || fresh.text() != "done\n" {
		t.Errorf("%v, %q", err, fresh.text())
	}
	if err := named.Wait(); err == nil {
		t.Errorf("the code in a container that stays ended well: %q", named.text())
	}
}

// TestWatchersOutliveTheDaemon checks that commands that follow what happens go on with the next daemon: `events`
// without a gap, and `watch` with an overflow for what it may have missed.
func TestWatchersOutliveTheDaemon(t *testing.T) {
	s := pinned(t)
	c := create(t, s)
	watch := cli(t, s, "watch", "--json", c.ID)
	watch.prints(t, `"type":"start"`)
	events := cli(t, s, "events", "-f", "--json", "--container", c.ID)
	events.prints(t, `"type":"container.created"`)
	stats := cli(t, s, "stats", "--interval", "1", "--json", c.ID)
	stats.prints(t, c.ID)
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		shown := len(stats.text())
		s.restart(t, sig)
		eventually(t, "the watch says that it may have missed something", func() bool {
			return strings.Count(watch.text(), `"type":"overflow"`) == i+1
		})
		name := fmt.Sprintf("after-%d", i)
		bash(t, s, c.ID, "touch /workspace/"+name)
		watch.prints(t, `"name":"`+name+`"`)
		events.prints(t, "touch /workspace/"+name)
		eventually(t, "stats go on", func() bool { return strings.Count(stats.text()[shown:], c.ID) > 1 })
	}
	seen := map[string]bool{}
	for line := range strings.Lines(events.text()) {
		if seen[line] {
			t.Errorf("the event came twice: %s", line)
		}
		seen[line] = true
	}
	// A container that is stopped ends its watch, which does not wake it.
	call[proto.Container](t, s, 200, "POST", "/v1/containers/"+c.ID+"/stop", "")
	if err := watch.Wait(); err == nil {
		t.Errorf("the watch of a stopped container ended well:\n%s", watch.text())
	}
	if now := call[proto.Container](t, s, 200, "GET", "/v1/containers/"+c.ID, ""); now.State != proto.StateStopped {
		t.Errorf("the container is %s", now.State)
	}
	for _, p := range []*program{events, stats} {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}

// TestClientsWaitForTheDaemon checks that what clients begin while the daemon is away, or is cut off in, is done once
// the daemon is back, and once: creates, starts of background commands, changes, and copies in both directions.
func TestClientsWaitForTheDaemon(t *testing.T) {
	s := pinned(t)
	c := create(t, s)
	lib, err := client.New(client.Config{Host: s.URL, Key: s.Key, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lib.Container(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	s.Stop(syscall.SIGKILL)
	made := make(chan proto.Container, 4)
	var wg sync.WaitGroup
	for range cap(made) {
		wg.Go(func() {
			con, err := lib.Create(t.Context(), proto.CreateContainer{Labels: map[string]string{"made": "meanwhile"},
				Limits: proto.Limits{MemoryBytes: 128 << 20, DiskBytes: 64 << 20}})
			if err != nil {
				t.Error(err)
			}
			made <- con
		})
		wg.Go(func() {
			if _, err := lib.Launch(t.Context(), c.ID, proto.Cmd{Command: "echo ran >>/workspace/ran"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() {
		if _, err := lib.Change(t.Context(), c.ID, proto.ChangeContainer{IdleTimeoutSeconds: 1234}); err != nil {
			t.Error(err)
		}
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	close(made)
	list, err := lib.Containers(t.Context(), client.Filter{Labels: []string{"made=meanwhile"}})
	if err != nil || len(list) != cap(made) {
		t.Errorf("%d containers were made, %v", len(list), err)
	}
	for con := range made {
		_, _ = lib.Delete(t.Context(), con.ID, false)
	}
	if con, err := lib.Container(t.Context(), c.ID); err != nil || con.IdleTimeoutSeconds != 1234 {
		t.Errorf("%+v, %v", con, err)
	}
	bash(t, s, c.ID, "until [ $(wc -l </workspace/ran) -ge 4 ]; do sleep 0.01; done")
	if got := bash(t, s, c.ID, "wc -l </workspace/ran").Result.Result.Stdout; got != "4\n" {
		t.Errorf("four commands ran %s times", got)
	}

	const size = 100 << 20
	bash(t, s, c.ID, fmt.Sprintf("head -c %d /dev/urandom >/workspace/big", size))
	local := filepath.Join(t.TempDir(), "big")
	part := func() int64 { // of what the copy has received so far
		list, _ := filepath.Glob(filepath.Join(filepath.Dir(local), ".berth-*"))
		for _, name := range list {
			if fi, err := os.Stat(name); err == nil {
				return fi.Size()
			}
		}
		return 0
	}
	for caught := false; !caught; {
		down := cli(t, s, "cp", c.ID+":/workspace/big", local)
		eventually(t, "the copy has begun", func() bool { return part() > 0 || exists(local) })
		_ = down.Process.Signal(syscall.SIGSTOP)
		if caught = !exists(local) && part() < size; caught {
			s.restart(t, syscall.SIGKILL)
		}
		_ = down.Process.Signal(syscall.SIGCONT)
		if err := down.Wait(); err != nil {
			t.Fatal(err)
		}
		if !caught {
			_ = os.Remove(local)
		}
	}
	before := connected(t, s.port(t))
	up := cli(t, s, "cp", local, c.ID+":/workspace/again")
	eventually(t, "the copy is connected", func() bool { return connected(t, s.port(t)) > before })
	_ = up.Process.Signal(syscall.SIGSTOP)
	s.restart(t, syscall.SIGKILL)
	_ = up.Process.Signal(syscall.SIGCONT)
	if err := up.Wait(); err != nil {
		t.Fatal(err)
	}
	if res := bash(t, s, c.ID, "cmp /workspace/big /workspace/again && echo same"); res.Result.Result.Stdout != "same\n" {
		t.Errorf("the copies differ: %+v", res.Result.Result)
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// port returns the port of a pinned server.
func (s *server) port(t *testing.T) int {
	t.Helper()
	_, text, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	port, convErr := strconv.Atoi(text)
	if err = errors.Join(err, convErr); err != nil {
		t.Fatal(err)
	}
	return port
}

// pinned restarts the server so that it keeps its port and its containers over restarts, until the end of the test.
func pinned(t *testing.T) *server {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	s, flags := base, base.Flags
	t.Cleanup(func() { s.Flags = flags; s.restart(t, syscall.SIGKILL) })
	s.Flags = append(slices.DeleteFunc(slices.Clone(s.Flags), func(f string) bool { return f == "--stop-on-exit" }),
		fmt.Sprintf("--listen=127.0.0.1:%d", port))
	s.restart(t, syscall.SIGKILL)
	return s
}

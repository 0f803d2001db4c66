package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
)

// dozes waits until the process that c's guest is only waits. The guest answers before that.
func dozes(t *testing.T, c *client.Client, pid int) {
	t.Helper()
	if err := c.Doze(t.Context()); err != nil || !c.Dozes() {
		t.Fatalf("dozing: %v, %v", err, c.Dozes())
	}
	for deadline := time.Now().Add(20 * time.Second); !waits(t, pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it stays awake")
		}
	}
}

// waits reports whether the process has no memory to speak of, and one thread.
func waits(t *testing.T, pid int) bool {
	t.Helper()
	fields := status(t, pid)
	// which is not told in the middle of an exec
	anon, err := strconv.Atoi(strings.TrimSuffix(fields["RssAnon"], " kB"))
	return err == nil && anon <= 16 && fields["Threads"] == "1"
}

// A guest that has dozed is the one that it was, whoever wakes it.
func TestDozes(t *testing.T) {
	c, cmd, dir := start(t)
	pid, ctx := cmd.Process.Pid, t.Context()
	before, err := c.Hello(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const looks = "umask; grep -E 'NoNewPrivs|Cap|Sig(Ign|Blk)|Seccomp' /proc/self/status; ulimit -a | grep -v " +
		"locks; env | sort; ls -l /proc/self/fd | wc -l; cat /proc/$PPID/oom_score_adj"
	was, _ := execute(t, c, wire.Command{User: "root", Text: looks + "; echo kept >/dev/shm/x"})

	dozes(t, c, pid)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGHUP} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if !waits(t, pid) || !c.Dozes() {
		t.Error("a signal wakes it")
	}
	if after, err := c.Hello(ctx); err != nil || after != before {
		t.Errorf("woken over the same connection: %+v, was %+v; %v", after, before, err)
	}
	if c.Dozes() || waits(t, pid) {
		t.Error("it answers, and is not awake")
	}
	if is, _ := execute(t, c, wire.Command{User: "root", Text: looks}); is != was {
		t.Errorf("a command finds\n%s, before\n%s", is, was)
	}
	if out, _ := execute(t, c, wire.Command{User: "root", Text: "cat /dev/shm/x; cat /proc/1/maps 2>/dev/null; " +
		"echo $?; tr '\\0' ' ' </proc/1/cmdline"}); !strings.HasPrefix(out, "kept\n1\n"+dir+"/guest -woken=") {
		t.Errorf("got %q", out)
	}

	dozes(t, c, pid)
	if out, x := execute(t, c, wire.Command{Text: "echo $((6*7))"}); out != "42\n" || x.Code != 0 {
		t.Errorf("a command that wakes it: %q %+v", out, x)
	}

	dozes(t, c, pid)
	over := dial(t, dir)
	over.TakeOver(c)
	if over.Dozes() {
		t.Error("a client that has taken over a connection, and nothing else, says that the guest dozes")
	}
	c = over
	if err := c.Close(); err != nil { // as when the daemon ends
		t.Fatal(err)
	}
	if !waits(t, pid) {
		t.Error("that the other side hangs up wakes it")
	}
	next := dial(t, dir)
	if after, err := next.Hello(ctx); err != nil || after != before {
		t.Errorf("woken by a connection: %+v, was %+v; %v", after, before, err)
	}
	dozes(t, next, pid)
	if out, _ := execute(t, dial(t, dir), wire.Command{Text: "echo two"}); out != "two\n" {
		t.Errorf("woken by one while another stands: %q", out)
	}
	if out, _ := execute(t, next, wire.Command{Text: "echo one"}); out != "one\n" {
		t.Errorf("the other, which it had over its sleep: %q", out)
	}
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if n := strings.Count(string(cmdline), "-"+wokenFlag+"="); err != nil || n != 1 {
		t.Errorf("it is told %d times that it woke: %q %v", n, cmdline, err)
	}
}

// What was sent to a guest that dozes, by somebody who has hung up since, is not done whenever it wakes.
func TestDozesOverWhatIsGivenUp(t *testing.T) {
	c, cmd, dir := start(t)
	pid := cmd.Process.Pid
	execute(t, c, wire.Command{Text: "true"}) // so that it is known how commands are sent
	dozes(t, c, pid)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil { // as one that gets no processor
		t.Fatal(err)
	}
	sent, over := make(chan struct{}), make(chan error)
	go func() {
		_, err := c.StartWith(t.Context(), wire.Command{Text: "true", Dir: dir + "/workspace/late"}, nil,
			client.StartOptions{Sent: func() { close(sent) }})
		over <- err
	}()
	<-sent
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err == nil {
		t.Error("it was started")
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !waits(t, pid) {
		t.Error("it wakes for it")
	}
	if out, _ := execute(t, dial(t, dir), wire.Command{Text: "ls"}); out != "" {
		t.Errorf("what was given up is done: there is %q", out)
	}
}

// One that has something to remember, or somebody to serve, stays awake and goes on with it.
func TestStaysAwake(t *testing.T) {
	c, cmd, dir := start(t)
	ctx := t.Context()
	nobody := func(proto.Stream, int64, []byte) {}
	refused := func(why string) {
		t.Helper()
		if err := c.Doze(ctx); proto.CodeOf(err) != proto.Conflict || c.Dozes() {
			t.Errorf("%s: %v", why, err)
		}
		if out, _ := execute(t, c, wire.Command{Text: "echo on"}); out != "on\n" {
			t.Errorf("%s: then a command has %q", why, out)
		}
	}

	p, err := c.Start(ctx, wire.Command{Text: "sleep 1000"}, nobody)
	if err != nil {
		t.Fatal(err)
	}
	refused("a command")
	other := dial(t, dir)
	if err := other.Doze(ctx); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("a command of somebody else's: %v", err)
	}
	_ = other.Close()
	if err := p.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}

	execute(t, c, wire.Command{Text: "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"})
	refused("a process that a command left")
	execute(t, c, wire.Command{User: "root", Text: "pkill -9 sleep; while pgrep sleep; do :; done"})

	execute(t, c, wire.Command{Shell: "s", Text: "x=5"})
	refused("a shell")
	if out, _ := execute(t, c, wire.Command{Shell: "s", Text: "echo $x"}); out != "5\n" {
		t.Errorf("what the shell had is %q", out)
	}
	if err := c.CloseShell(ctx, "s"); err != nil {
		t.Fatal(err)
	}

	if _, x := execute(t, c, wire.Command{ID: "exec_1", Keep: 1 << 10, Text: "echo kept"}); x.Code != 0 {
		t.Fatal(x)
	}
	refused("a result that is kept")
	if err := c.Forget(ctx, "exec_1"); err != nil {
		t.Fatal(err)
	}

	dozes(t, c, cmd.Process.Pid)
	if out, x := execute(t, c, wire.Command{Shell: "s", Text: "echo again"}); out != "again\n" || x.Code != 0 {
		t.Errorf("a shell after all that: %q %+v", out, x)
	}
}

// Whoever comes while it is on its way to sleep is served: none of these commands is lost or run twice.
func TestDozesWhileWanted(t *testing.T) {
	c, _, dir := start(t)
	ctx, others := t.Context(), make([]*client.Client, 3)
	for i := range others {
		others[i] = dial(t, dir)
	}
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			switch err := c.Doze(ctx); {
			case err == nil:
				n++
			case proto.CodeOf(err) != proto.Conflict:
				t.Errorf("dozing: %v", err)
				return
			}
		}
	}()
	for i := range 200 {
		o := others[i%len(others)]
		out, x := execute(t, o, wire.Command{Text: "echo " + strconv.Itoa(i) + " | tee -a /dev/shm/all"})
		if out != strconv.Itoa(i)+"\n" || x.Code != 0 {
			t.Fatalf("command %d: %q %+v", i, out, x)
		}
		if i%20 == 0 { // so that nobody stands in the way for a while
			for _, o := range others {
				_ = o.Close()
			}
			time.Sleep(20 * time.Millisecond)
			for i := range others {
				others[i] = dial(t, dir)
			}
		}
	}
	close(stop)
	if n := <-done; n == 0 {
		t.Error("it never dozed")
	} else {
		t.Logf("it dozed %d times", n)
	}
	if out, _ := execute(t, c, wire.Command{
		Text: "sort -n /dev/shm/all | uniq | wc -l; wc -l </dev/shm/all"}); out != "200\n200\n" {
		t.Errorf("commands that ran: %q", out)
	}
}

// BenchmarkWake is a command that wakes the guest; TestDozes has what it saves.
func BenchmarkWake(b *testing.B) {
	c, _, _ := start(b)
	for b.Loop() {
		b.StopTimer()
		if err := c.Doze(b.Context()); err != nil {
			b.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // it answers before it dozes
		b.StartTimer()
		if _, x := execute(b, c, wire.Command{Text: "true"}); x.Code != 0 {
			b.Fatal(x)
		}
	}
}

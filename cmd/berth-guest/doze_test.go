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

// dozes makes c's guest doze, and waits until it does. The guest answers before that.
func dozes(t *testing.T, c *client.Client, pid int) {
	t.Helper()
	if err := c.Doze(t.Context()); err != nil || !c.Dozes() {
		t.Fatalf("dozing: %v, %v", err, c.Dozes())
	}
	for deadline := time.Now().Add(20 * time.Second); !waits(t, pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the guest does not doze")
		}
	}
}

// waits reports whether the process has nearly no memory and one thread.
func waits(t *testing.T, pid int) bool {
	t.Helper()
	fields := status(t, pid)
	// /proc lacks the field during an exec
	anon, err := strconv.Atoi(strings.TrimSuffix(fields["RssAnon"], " kB"))
	return err == nil && anon <= 16 && fields["Threads"] == "1"
}

// TestDozes checks that a guest is the same after a doze, over an old connection and over a new one.
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
		t.Error("a signal wakes the guest")
	}
	if after, err := c.Hello(ctx); err != nil || after != before {
		t.Errorf("woken over the same connection: %+v, was %+v; %v", after, before, err)
	}
	if c.Dozes() || waits(t, pid) {
		t.Error("the guest answers while it dozes")
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
		t.Error("a client that has only taken over a connection reports that the guest dozes")
	}
	c = over
	if err := c.Close(); err != nil { // as when the daemon ends
		t.Fatal(err)
	}
	if !waits(t, pid) {
		t.Error("the end of a connection wakes the guest")
	}
	next := dial(t, dir)
	if after, err := next.Hello(ctx); err != nil || after != before {
		t.Errorf("woken by a connection: %+v, was %+v; %v", after, before, err)
	}
	dozes(t, next, pid)
	if out, _ := execute(t, dial(t, dir), wire.Command{Text: "echo two"}); out != "two\n" {
		t.Errorf("woken by a second connection: %q", out)
	}
	if out, _ := execute(t, next, wire.Command{Text: "echo one"}); out != "one\n" {
		t.Errorf("over the connection that outlived the doze: %q", out)
	}
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if n := strings.Count(string(cmdline), "-"+wokenFlag+"="); err != nil || n != 1 {
		t.Errorf("the command line has the flag %d times: %q %v", n, cmdline, err)
	}
}

// TestDozeDropsOldRequests checks that a dozing guest drops the request of a client that has disconnected since.
func TestDozeDropsOldRequests(t *testing.T) {
	c, cmd, dir := start(t)
	pid := cmd.Process.Pid
	execute(t, c, wire.Command{Text: "true"}) // the client then knows whether descriptors can cross
	dozes(t, c, pid)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil { // as if it got no CPU time
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
		t.Error("the command was started")
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !waits(t, pid) {
		t.Error("the dropped request wakes the guest")
	}
	if out, _ := execute(t, dial(t, dir), wire.Command{Text: "ls"}); out != "" {
		t.Errorf("the dropped request was carried out: there is %q", out)
	}
}

// TestStaysAwake checks that a guest with state, processes or other connections does not doze.
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
			t.Errorf("%s: a command then prints %q", why, out)
		}
	}

	p, err := c.Start(ctx, wire.Command{Text: "sleep 1000"}, nobody)
	if err != nil {
		t.Fatal(err)
	}
	refused("a command")
	other := dial(t, dir)
	if err := other.Doze(ctx); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("while another connection runs a command: %v", err)
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
		t.Errorf("the shell has lost its state: %q", out)
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
		t.Errorf("a shell at the end: %q %+v", out, x)
	}
}

// TestDozesUnderLoad checks that no command is lost or run twice when it arrives just as the guest begins to doze.
func TestDozesUnderLoad(t *testing.T) {
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
		if i%20 == 0 { // no other connection prevents a doze for a while
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
		t.Error("the guest never dozed")
	} else {
		t.Logf("it dozed %d times", n)
	}
	if out, _ := execute(t, c, wire.Command{
		Text: "sort -n /dev/shm/all | uniq | wc -l; wc -l </dev/shm/all"}); out != "200\n200\n" {
		t.Errorf("commands that ran: %q", out)
	}
}

// BenchmarkWake measures a command that wakes the guest.
func BenchmarkWake(b *testing.B) {
	c, _, _ := start(b)
	for b.Loop() {
		b.StopTimer()
		if err := c.Doze(b.Context()); err != nil {
			b.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // the guest answers before it dozes
		b.StartTimer()
		if _, x := execute(b, c, wire.Command{Text: "true"}); x.Code != 0 {
			b.Fatal(x)
		}
	}
}

package session_test

import (
	"context"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

func TestOpenFileHoldsItsSession(t *testing.T) {
	ctx := context.Background()
	now := newClock()
	st := sessiontest.New(t, session.Config{Now: now.Now})
	s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60})
	sessiontest.Bash(t, s, "echo body >f; mkdir d; echo x >d/x")
	f, _, err := s.ReadFile(ctx, proto.UserDefault, proto.JobDir(s.DefaultJob())+"/f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	tarball, err := s.Tar(ctx, proto.UserDefault, proto.JobDir(s.DefaultJob())+"/d")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []io.ReadCloser{tarball, f} {
		now.Add(time.Hour)
		if done := sweep(t, st); done.Stopped != 0 {
			t.Fatalf("stopped under an open reader: %+v", done)
		}
		if _, err := io.ReadAll(r); err != nil {
			t.Error(err)
		}
		r.Close()
		r.Close() // a second Close changes nothing
	}
	if done := sweep(t, st); done.Stopped != 0 {
		t.Errorf("closing a file did not renew the lease: %+v", done)
	}
	now.Add(time.Hour)
	if done := sweep(t, st); done.Stopped != 1 {
		t.Errorf("still held after the readers were closed: %+v", done)
	}
}

func TestStopAllAndDigests(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	var all []*session.Session
	for range 3 {
		all = append(all, st.Create(t, proto.CreateContainer{}))
	}
	e, err := all[0].Exec(ctx, proto.Cmd{Command: "sleep 600", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	if d := st.Sessions.Digests(); len(d) != 1 || !strings.HasPrefix(d[0], "sha256:") {
		t.Errorf("three containers of one image need %v", d)
	}
	if err := st.Sessions.StopAll(ctx); err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(ctx); err != nil || res.Exec.End.Reason != proto.EndStopped ||
		res.Exec.End.ReturnCode != 137 {
		t.Errorf("%+v %v", res.Exec.End, err)
	}
	if n := st.Sessions.Counts(); n.ByState[proto.StateStopped] != 3 || len(sandboxes(t, st.Runtime)) != 0 {
		t.Errorf("%+v", n)
	}
	if d := st.Sessions.Digests(); len(d) != 1 {
		t.Errorf("stopped containers need their image too: %v", d)
	}
	for _, s := range all {
		if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
			t.Error(err)
		}
	}
	if d := st.Sessions.Digests(); len(d) != 0 {
		t.Errorf("nobody needs %v", d)
	}
}

func TestExtend(t *testing.T) {
	now := newClock()
	st := sessiontest.New(t, session.Config{Now: now.Now})
	s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60, MaxLifetimeSeconds: 7200})
	for _, d := range []time.Duration{-1, time.Millisecond, 31 * 24 * time.Hour} {
		_, err := s.Extend(d)
		wantCode(t, err, proto.InvalidArgument, "seconds")
	}
	long, err := s.Extend(time.Hour)
	if err != nil || !long.ExpiresAt.Equal(now.Now().Add(time.Hour)) {
		t.Fatalf("%v %v", long.ExpiresAt, err)
	}
	for _, d := range []time.Duration{0, 10 * time.Second} { // an extension never shortens the lease
		if again, err := s.Extend(d); err != nil || !again.ExpiresAt.Equal(long.ExpiresAt.Time) {
			t.Errorf("extending by %v moved the lease to %v (%v)", d, again.ExpiresAt, err)
		}
	}
	now.Add(50 * time.Minute)
	if done := sweep(t, st); done.Stopped != 0 {
		t.Errorf("swept within its extension: %+v", done)
	}
	st.Reopen(t)
	again, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil || again.Info().ExpiresAt.Before(long.ExpiresAt.Time) {
		t.Errorf("a restart forgot the extension: %v %v", again.Info().ExpiresAt, err)
	}
	now.Add(2 * time.Hour)
	_, err = again.Extend(time.Minute)
	wantCode(t, err, proto.Expired, s.ID())
}

func TestDeadlinesAtTheCap(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{MaxLifetimeSeconds: 2})
	background, err := s.Exec(ctx, proto.Cmd{Command: "sleep 600", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	foreground, err := s.Exec(ctx, proto.Cmd{Command: "sleep 600", TimeoutSeconds: 500})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*session.Exec{background, foreground} {
		if res, err := e.Wait(ctx); err != nil || res.Exec.End.Reason != proto.EndExpired {
			t.Errorf("%+v %v", res.Exec.End, err)
		}
	}
}

func TestShellsAreListedAndClosed(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	for _, name := range []string{"b", "a"} {
		run(t, s, proto.Cmd{Command: "true", Shell: name})
	}
	list, err := s.Shells(ctx)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v %v", list, err)
	}
	if err := s.CloseShell(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if list, err = s.Shells(ctx); err != nil || len(list) != 1 || list[0].Name != "b" {
		t.Errorf("%+v %v", list, err)
	}
	wantCode(t, s.CloseShell(ctx, "a"), proto.NotFound, "a")
}

func TestAuditSaysWhoRanWhat(t *testing.T) {
	var mu sync.Mutex
	var log []proto.AuditEntry
	var all []string
	st := sessiontest.New(t, session.Config{Audit: func(e proto.AuditEntry) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e.Act)
		if e.Act == "exec.end" {
			log = append(log, e)
		}
	}})
	s := st.Create(t, proto.CreateContainer{})
	res := run(t, s, proto.Cmd{Command: "echo ab >made; printf err >&2; export API_KEY=hunter22; exit 3", JobID: "j",
		User: proto.UserRoot})
	run(t, s, proto.Cmd{Command: ": " + strings.Repeat("x", 900_000) + " password=hunter22"})
	mu.Lock()
	defer mu.Unlock()
	if len(log) != 2 {
		t.Fatalf("%d entries for two commands", len(log))
	}
	if want := []string{"container.start", "container.create", "exec.begin", "exec.end", "exec.begin",
		"exec.end"}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	e, x := log[0], log[0].Exec
	if e.Owner != sessiontest.Owner || e.ContainerID != s.ID() || e.ExecID != res.Exec.ID || x.JobID != "j" ||
		x.User != "root" || x.ReturnCode != 3 ||
		x.StderrBytes != 3 || x.Reason != proto.EndExit || len(x.Produced) != 1 || x.Produced[0] != "made" ||
		e.Actor != proto.ActorDaemon {
		t.Errorf("%+v", e)
	}
	if strings.Contains(x.Command, "hunter22") || !strings.Contains(x.Command, "echo ab") {
		t.Errorf("command %q", x.Command)
	}
	if n := len(log[1].Exec.Command); n > 20<<10 {
		t.Errorf("a line of %d bytes for a command of 900 KB", n)
	}
}

func TestTooMuchOutputIsAlwaysTold(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	for range 50 { // it ends by itself at the same moment
		res := run(t, s, proto.Cmd{Command: "head -c 2000 /dev/zero", MaxOutputBytes: 1000,
			OnOutputLimit: proto.OutputFail})
		if res.Exec.End.Reason != proto.EndOutputLimit {
			t.Fatalf("%+v", res.Exec.End)
		}
	}
}

func TestRememberedOutputIsBounded(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{OutputDisk: 1}) // no output fits
	s := st.Create(t, proto.CreateContainer{})
	var held, told int
	for range 8 {
		if res := run(t, s, proto.Cmd{Command: "head -c 1000000 /dev/zero | tr '\\0' x"}); len(
			res.Result.Result.Stdout) != 1000000 {
			t.Fatalf("%d bytes", len(res.Result.Result.Stdout))
		}
	}
	for _, e := range s.Execs() {
		res, err := e.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		held += len(res.Result.Result.Stdout)
		if res.Exec.Truncated && strings.Contains(res.Result.Result.Stdout, "1000000 bytes left out") {
			told++
		}
	}
	if held > 5<<20 || told == 0 {
		t.Errorf("%d bytes of ended commands are kept; %d say that theirs is gone", held, told)
	}
}

// TestExtendHoldsItsSession checks that a session is not stopped as idle while the extension of its lease is being
// written.
func TestExtendHoldsItsSession(t *testing.T) {
	c := newTwoClocks()
	cfg := c.config(session.Config{})
	var looking atomic.Bool
	looks := make(chan struct{})
	cfg.Now = func() time.Time {
		if looking.Load() {
			looks <- struct{}{}
		}
		return c.wall.Now()
	}
	st := sessiontest.New(t, cfg)
	s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60})
	c.pass(59 * time.Second)
	let := holdLedger(t, st)
	looking.Store(true)
	extended := make(chan error, 1)
	go func() { _, err := s.Extend(time.Hour); extended <- err }()
	<-looks // Extend asks whether the session may be used
	<-looks // and for the new lease
	looking.Store(false)
	c.pass(2 * time.Second)
	swept := make(chan session.Swept, 1)
	go func() { done, _ := st.Sessions.Sweep(context.Background()); swept <- done }()
	var done session.Swept
	select {
	case done = <-swept:
		let()
	case <-time.After(5 * time.Second): // the sweep has something to write, and waits
		let()
		done = <-swept
	}
	if err := within(t, "extending", extended); err != nil {
		t.Error(err)
	}
	if info := s.Info(); done != (session.Swept{}) || info.State != proto.StateRunning {
		t.Errorf("the sweep did %+v, and it is %s until %v", done, info.State, info.ExpiresAt)
	}
}

// holdLedger blocks the stack's writes until let is called.
func holdLedger(t *testing.T, st *sessiontest.Stack) (let func()) {
	t.Helper()
	held, gate := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(held) }) // the ledger may run it again, in another batch
	st.Ledger.StartUpdate(func(*ledger.Tx) error { begun(); <-gate; return nil })
	<-held
	let = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(let)
	return let
}

// BenchmarkIdleSession measures what an idle session costs the daemon after one command: heap, stacks and goroutines,
// with the guest's connection.
func BenchmarkIdleSession(b *testing.B) {
	st := sessiontest.New(b, session.Config{})
	sessiontest.Bash(b, st.Create(b, proto.CreateContainer{}), "true")
	before, routines := inUse(), runtime.NumGoroutine()
	n := 0
	for b.Loop() {
		sessiontest.Bash(b, st.Create(b, proto.CreateContainer{}), "true")
		n++
	}
	b.ReportMetric(float64(inUse()-before)/float64(n), "B/session")
	b.ReportMetric(float64(runtime.NumGoroutine()-routines)/float64(n), "goroutines/session")
}

// inUse returns the memory in use after a collection, in bytes.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

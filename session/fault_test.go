package session_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/artifacts"
	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/session/limits"
	"berth/state/ledger"
	"berth/test/needs"
	"berth/test/sessiontest"

	"golang.org/x/sys/unix"
)

// faultyRuntime is a Runtime with steps that fail, or that notify the test.
type faultyRuntime struct {
	session.Runtime
	stopping        func() error // before Stop
	started         func()       // after Start
	measuring       func()       // when counters are read while a command is being started
	removeWorkspace func() error
	listed          func() // after List
}

func (f *faultyRuntime) Measure(id, workspace string) limits.Reading {
	if f.measuring != nil {
		f.measuring()
	}
	return limits.Reading{}
}

func (f *faultyRuntime) Stop(ctx context.Context, id string) error {
	if f.stopping != nil {
		if err := f.stopping(); err != nil {
			return err
		}
	}
	return f.Runtime.Stop(ctx, id)
}

func (f *faultyRuntime) Start(ctx context.Context, id string, spec session.Spec) error {
	err := f.Runtime.Start(ctx, id, spec)
	if f.started != nil {
		f.started()
	}
	return err
}

func (f *faultyRuntime) List(ctx context.Context) (session.Inventory, error) {
	inv, err := f.Runtime.List(ctx)
	if f.listed != nil {
		f.listed()
	}
	return inv, err
}

func (f *faultyRuntime) RemoveWorkspace(ctx context.Context, id string) error {
	if f.removeWorkspace != nil {
		if err := f.removeWorkspace(); err != nil {
			return err
		}
	}
	return f.Runtime.RemoveWorkspace(ctx, id)
}

func faulty(t *testing.T, cfg session.Config) (*faultyRuntime, *sessiontest.Stack) {
	t.Helper()
	rt := &faultyRuntime{Runtime: sessiontest.NewRuntime(t)}
	return rt, sessiontest.Over(t, rt, sessiontest.Images{}, cfg)
}

// heldJobs wraps the Jobs of a stack and calls a function before it records an end.
type heldJobs struct {
	session.Jobs
	ending func(context.Context, session.Files)
	begin  func() // before inputs are put in place
}

func (h *heldJobs) Begin(ctx context.Context, f session.Files, files []string) error {
	if h.begin != nil {
		h.begin()
	}
	return h.Jobs.Begin(ctx, f, files)
}

func (h *heldJobs) End(ctx context.Context, s session.Files, e proto.Exec, tail string,
	seen session.DirectoryState) session.Produced {
	if h.ending != nil {
		h.ending(ctx, s)
	}
	return h.Jobs.End(ctx, s, e, tail, seen)
}

// holdJobs reopens the stack's sessions with Jobs that can be held.
func holdJobs(t *testing.T, st *sessiontest.Stack) *heldJobs {
	t.Helper()
	if err := st.Sessions.Close(); err != nil {
		t.Fatal(err)
	}
	held := &heldJobs{Jobs: st.Jobs}
	var err error
	st.Sessions, err = session.Open(context.Background(), session.Config{
		Dir: st.Dir, Runtime: st.Runtime, Images: st.Images, Ledger: st.Ledger, Jobs: held,
	})
	if err != nil {
		t.Fatal(err)
	}
	st.Sessions.HandshakeAll()
	return held
}

func sandboxes(t *testing.T, rt session.Runtime) []string {
	t.Helper()
	inv, err := rt.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return inv.Sandboxes
}

// endless is a body without an end that notifies the test of the first read.
type endless struct {
	begun chan struct{}
	once  sync.Once
}

func (e *endless) Read(b []byte) (int, error) {
	e.once.Do(func() { close(e.begun) })
	return 1, nil // slowly, to fill no disk
}

func within(t *testing.T, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		t.Fatalf("%s hangs", what)
		return nil
	}
}

func TestBooksNeverStartAStoppedSandbox(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	held := holdJobs(t, st)
	s := st.Create(t, proto.CreateContainer{})
	ended, stopped := make(chan struct{}), make(chan struct{})
	held.ending = func(context.Context, session.Files) { close(ended); <-stopped }
	e, err := s.Exec(ctx, proto.Cmd{Command: "echo x >made"})
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	close(stopped)
	res, err := e.Wait(ctx)
	if err != nil || res.Exec.End.Reason != proto.EndExit || len(res.Notes) == 0 {
		t.Errorf("%+v, notes %q, %v", res.Exec.End, res.Notes, err)
	}
	if got := sandboxes(t, st.Runtime); len(got) != 0 || s.Info().State != proto.StateStopped {
		t.Errorf("booking an end started the sandbox again: %v, state %s", got, s.Info().State)
	}
}

// TestDeleteUnderTheBooks checks that there is no deadlock: a delete waits for execs, and an exec whose Jobs find the
// guest gone at that moment must not wait for the delete.
func TestDeleteUnderTheBooks(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	held := holdJobs(t, st)
	s := st.Create(t, proto.CreateContainer{})
	ended := make(chan struct{})
	held.ending = func(ctx context.Context, s session.Files) {
		if _, err := s.WriteFile(ctx, proto.UserRoot, "/tmp/large", session.WriteOptions{},
			&endless{begun: ended}); err == nil {
			t.Error("an endless file has an end")
		}
	}
	e, err := s.Exec(ctx, proto.Cmd{Command: "true"})
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	done := make(chan error, 1)
	go func() { done <- st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false) }()
	if err := within(t, "deleting", done); err != nil {
		t.Error(err)
	}
	if _, err := e.Wait(ctx); err != nil {
		t.Error(err)
	}
}

func TestChangeThatRunsTwiceCountsOnce(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	gate, failed := make(chan struct{}), errors.New("no")
	st.Ledger.StartUpdate(func(*ledger.Tx) error { <-gate; return nil })
	wait := s.BumpGeneration()
	// makes the ledger run the other updates of the batch again
	st.Ledger.StartUpdate(func(*ledger.Tx) error { return failed })
	close(gate)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if g := s.Info().Generation; g != 2 {
		t.Errorf("generation %d after one change, want 2", g)
	}
}

func TestStopThatCannotBeRecorded(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Command: "read -r x; echo got $x", OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	st.Ledger.Close()
	if err := s.Stop(ctx); err == nil {
		t.Error("stopped without a record of it")
	}
	if s.Info().State != proto.StateRunning || len(sandboxes(t, st.Runtime)) != 1 {
		t.Errorf("half stopped: %s", s.Info().State)
	}
	if err := e.Write(ctx, []byte("on\n")); err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(ctx); err != nil || res.Result.Result == nil || res.Result.Result.Stdout != "got on\n" {
		t.Errorf("%+v %v", res.Exec.End, err)
	}
	if _, err := s.Run(ctx, proto.Cmd{Command: "true"}); err == nil {
		t.Error("a command ran that nobody would remember")
	}
	if n := len(s.Execs()); n != 1 {
		t.Errorf("%d execs are listed, want the first alone", n)
	}
	if _, err := s.Extend(time.Hour); err == nil {
		t.Error("a lease was promised that is written nowhere")
	}
	st.Sessions.Close() // fails, since the ledger is closed
	st.Sessions = nil
}

func TestStartThatCannotBeRecordedLeavesNoSandbox(t *testing.T) {
	rt, st := faulty(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	rt.started = func() { st.Ledger.Close() }
	if err := s.Start(context.Background()); err == nil {
		t.Error("started without a record of it")
	}
	if got := sandboxes(t, rt); len(got) != 0 {
		t.Errorf("left running: %v", got)
	}
	st.Sessions.Close()
	st.Sessions = nil
}

func TestFailedStopIsMadeUpFor(t *testing.T) {
	ctx := context.Background()
	rt, st := faulty(t, session.Config{})
	for _, how := range []string{"by the sweeper", "by the next use"} {
		s := st.Create(t, proto.CreateContainer{})
		sessiontest.Bash(t, s, "touch /dev/shm/old")
		rt.stopping = func() error { return errors.New("no") }
		if err := s.Stop(ctx); err == nil {
			t.Fatal("the failure is not told")
		}
		rt.stopping = nil
		if how == "by the sweeper" {
			if done := sweep(t, st); done.Sandboxes != 1 || slices.Contains(sandboxes(t, rt), s.ID()) {
				t.Errorf("%s: %+v", how, done)
			}
		}
		if out := sessiontest.Bash(t, s, "ls /dev/shm/old 2>/dev/null; echo up").Stdout; out != "up\n" {
			t.Errorf("%s: the next generation is the old sandbox: %q", how, out)
		}
	}
}

func TestExpiryThatFailsIsFinishedLater(t *testing.T) {
	ctx := context.Background()
	now := newClock()
	rt, st := faulty(t, session.Config{Now: now.Now})
	st.Create(t, proto.CreateContainer{MaxLifetimeSeconds: 10})
	now.Add(time.Minute)
	rt.removeWorkspace = func() error { return errors.New("busy") }
	if _, err := st.Sessions.Sweep(ctx); err == nil {
		t.Fatal("the failure is not told")
	}
	rt.removeWorkspace = nil
	sweep(t, st)
	if inv, _ := rt.List(ctx); len(inv.Workspaces) != 0 {
		t.Errorf("an expired container's files are still there: %+v", inv)
	}
}

// TestExpiredHoldsItsWorkspaceUntilItIsDown checks that the workspace of an expired container becomes free when its
// sandbox has stopped, and not before: its processes may still write there.
func TestExpiredHoldsItsWorkspaceUntilItIsDown(t *testing.T) {
	ctx := t.Context()
	now := newClock()
	rt, st := faulty(t, session.Config{Now: now.Now})
	first := st.Create(t, proto.CreateContainer{})
	again := proto.CreateContainer{WorkspaceID: first.WorkspaceID(), MaxLifetimeSeconds: 10}
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, first.ID(), true); err != nil {
		t.Fatal(err)
	}
	st.Create(t, again)
	now.Add(time.Minute)
	rt.stopping = func() error { return errors.New("busy") }
	if _, err := st.Sessions.Sweep(ctx); err == nil {
		t.Fatal("the failure is not told")
	}
	_, err := st.Sessions.Create(ctx, sessiontest.Owner, again)
	wantCode(t, err, proto.Conflict, "belongs to container")
	rt.stopping = nil
	sweep(t, st)
	st.Create(t, again)
}

// TestFilesThatBeganToGoAreNotKept checks that a later request cannot keep files whose removal has begun: some may be
// gone.
func TestFilesThatBeganToGoAreNotKept(t *testing.T) {
	for how, begin := range map[string]func(*sessiontest.Stack, *clock, string) error{
		"expiry": func(st *sessiontest.Stack, now *clock, _ string) error {
			now.Add(time.Minute)
			_, err := st.Sessions.Sweep(context.Background())
			return err
		},
		"deletion": func(st *sessiontest.Stack, _ *clock, id string) error {
			return st.Sessions.Delete(context.Background(), sessiontest.Owner, id, false)
		},
	} {
		t.Run(how, func(t *testing.T) { beganToGo(t, begin) })
	}
}

func beganToGo(t *testing.T, begin func(*sessiontest.Stack, *clock, string) error) {
	ctx := context.Background()
	now := newClock()
	rt, st := faulty(t, session.Config{Now: now.Now})
	s := st.Create(t, proto.CreateContainer{MaxLifetimeSeconds: 10})
	rt.removeWorkspace = func() error { return errors.New("busy") }
	if begin(st, now, s.ID()) == nil {
		t.Fatal("the failure is not told")
	}
	rt.removeWorkspace = nil
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), true); err != nil {
		t.Fatal(err)
	}
	if inv, _ := rt.List(ctx); len(inv.Workspaces) != 0 || len(st.Sessions.Workspaces(sessiontest.Owner)) != 0 {
		t.Errorf("kept: %+v", inv)
	}
}

func TestCreateThatCannotBeUndoneIsUndoneBySweep(t *testing.T) {
	ctx := context.Background()
	rt, st := faulty(t, session.Config{})
	no := func() error { return errors.New("no") }
	rt.stopping = no
	_, err := st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{
		Files: []string{"file_0000000000000000000000"}})
	wantCode(t, err, proto.NotFound, "file_")
	rt.stopping = nil
	sweep(t, st)
	list, _, _ := st.Sessions.List(sessiontest.Owner, session.Filter{})
	if inv, _ := rt.List(ctx); len(list)+len(inv.Sandboxes)+len(inv.Workspaces) != 0 {
		t.Errorf("left: %v %+v", list, inv)
	}
}

func TestCloseWhileACommandWaitsToStart(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	first, err := s.Exec(ctx, proto.Cmd{Command: "echo up; sleep 600", Shell: "sh", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	untilOutput(t, first, "up\n")
	second := make(chan error, 1)
	go func() {
		e, err := s.Exec(ctx, proto.Cmd{Command: "sleep 600", Shell: "sh", Background: true})
		if err == nil {
			_, err = e.Wait(ctx)
		}
		second <- err
	}()
	closed := make(chan error, 1)
	go func() { closed <- st.Sessions.Close() }()
	if err := within(t, "closing", closed); err != nil {
		t.Error(err)
	}
	within(t, "the command that waited", second)
	if got := sandboxes(t, st.Runtime); len(got) != 1 {
		t.Errorf("closing stopped the sandbox: %v", got)
	}
	_, err = s.Exec(ctx, proto.Cmd{Command: "true"})
	wantCode(t, err, proto.Unavailable, "")
}

func TestCloseUnderAnOpenFileKeepsTheSandbox(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	body, written := &endless{begun: make(chan struct{})}, make(chan error, 1)
	go func() {
		_, err := s.WriteFile(ctx, proto.UserDefault, "/tmp/large", session.WriteOptions{}, body)
		written <- err
	}()
	<-body.begun
	if err := st.Sessions.Close(); err != nil {
		t.Error(err)
	}
	if err := within(t, "writing", written); err == nil {
		t.Error("an endless file has an end")
	}
	if got := sandboxes(t, st.Runtime); len(got) != 1 {
		t.Errorf("letting go of a busy guest stopped it: %v", got)
	}
}

func TestSandboxThatVanishedComesBack(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "echo kept >mark")
	if err := st.Runtime.Stop(ctx, s.ID()); err != nil { // without the core's knowledge
		t.Fatal(err)
	}
	if out := sessiontest.Bash(t, s, "cat mark").Stdout; out != "kept\n" {
		t.Errorf("%q", out)
	}
}

// onSmallDisk opens a core whose ledger is on a disk that the test can fill.
func onSmallDisk(t *testing.T) (ss *session.Sessions, rt session.Runtime, fill, empty func()) {
	t.Helper()
	dir := t.TempDir()
	needs.Root(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	books, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := files.Open(files.Config{Dir: t.TempDir(), Ledger: books})
	if err != nil {
		t.Fatal(err)
	}
	rt = sessiontest.NewRuntime(t)
	ss, err = session.Open(context.Background(), session.Config{
		Dir: t.TempDir(), Runtime: rt, Images: sessiontest.Images{}, Ledger: books, Jobs: artifacts.New(
			artifacts.Config{Files: store, Ledger: books}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ss.Close(); _ = store.Close(); _ = books.Close() })
	filler := filepath.Join(dir, "filler")
	fill = func() { _ = os.WriteFile(filler, bytes.Repeat([]byte{1}, 2<<20), 0o600) }
	empty = func() { _ = os.Remove(filler) }
	return ss, rt, fill, empty
}

func TestFullDiskLeavesNothingHalfDone(t *testing.T) {
	ctx := context.Background()
	ss, rt, fill, empty := onSmallDisk(t)
	s, err := ss.Create(ctx, sessiontest.Owner, proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	fill()
	bulk := map[string]string{}
	for i := range 60 { // more than the free pages in the ledger's file
		bulk[strings.Repeat("k", 100)+string(rune('A'+i))] = strings.Repeat("v", 250)
	}
	if _, err := ss.Create(ctx, sessiontest.Owner, proto.CreateContainer{Labels: bulk}); err == nil {
		t.Error("a container was made that a restart would forget")
	}
	if got := sandboxes(t, rt); len(got) != 1 {
		t.Errorf("sandboxes: %v", got)
	}
	err = ss.Delete(ctx, sessiontest.Owner, s.ID(), false)
	empty()
	if err != nil {
		if _, err := ss.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := ss.Get(sessiontest.Owner, s.ID()); err == nil { // the removal has not begun
			if err := ss.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := ss.Counts(); len(n.ByState) != 0 || n.Workspaces != 0 {
		t.Errorf("left in memory: %+v", n)
	}
	if inv, _ := rt.List(ctx); len(inv.Sandboxes)+len(inv.Workspaces) != 0 {
		t.Errorf("left: %+v", inv)
	}
}

// TestUnrecordedCommandEnds checks that a command ends if its start cannot be recorded, even if its output waits for
// a reader.
func TestUnrecordedCommandEnds(t *testing.T) {
	ctx := context.Background()
	rt, st := faulty(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	release, deleted := make(chan struct{}), make(chan error, 1)
	rt.stopping = func() error { <-release; return nil }
	rt.measuring = sync.OnceFunc(func() {
		go func() { deleted <- st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false) }()
		for {
			// its state from the moment that its end is decided
			if _, err := st.Sessions.Get(sessiontest.Owner, s.ID()); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond) // until a pipe is full, for which there is no event
	})
	cmd := proto.Cmd{Argv: []string{"cat", "/dev/zero"}, MaxOutputBytes: 1, OnOutputLimit: proto.OutputWait}
	if _, err := s.Exec(ctx, cmd); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("in a container that is being deleted: %v", err)
	}
	close(release)
	if err := within(t, "deleting the container", deleted); err != nil {
		t.Error(err)
	}
}

// A stuckRuntime can fail to resume a paused sandbox.
type stuckRuntime struct {
	*sessiontest.Runtime
	stuck bool
}

func (rt *stuckRuntime) Resume(ctx context.Context, id string) error {
	if rt.stuck {
		return errFault
	}
	return rt.Runtime.Resume(ctx, id)
}

// TestPausedForGood checks that a paused container that cannot be resumed can be deleted, even with a command that an
// earlier daemon started.
func TestPausedForGood(t *testing.T) {
	ctx := context.Background()
	rt := &stuckRuntime{Runtime: sessiontest.NewRuntime(t)}
	st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	start(t, s, proto.Cmd{Command: "sleep 1000", Detach: true})
	if err := s.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	st.Reopen(t)
	rt.stuck = true
	done := make(chan error, 1)
	go func() { done <- st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false) }()
	if err := within(t, "deleting", done); err != nil {
		t.Error(err)
	}
}

// TestReplayOfHalfMade checks a container whose inputs were incomplete when the daemon died. A request with its key
// does not get that container but makes a new one.
func TestReplayOfHalfMade(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	f, err := st.Files.Put(ctx, files.Upload{Owner: sessiontest.Owner, Filename: "data"}, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	held, dir := holdJobs(t, st), ""
	held.begin = func() {
		if dir == "" {
			dir = killed(t, st)
		}
	}
	req := proto.CreateContainer{IdempotencyKey: "once", Files: []string{f.ID}}
	half := st.Create(t, req)
	st.Close(t)
	next := sessiontest.Over(t, st.Runtime, sessiontest.Images{}, session.Config{}) // to make a directory
	next.Close(t)
	next.Dir = dir
	next.Open(t)
	s, replayed, err := next.Sessions.CreateOnce(ctx, sessiontest.Owner, req)
	if err != nil || replayed || s.ID() == half.ID() {
		t.Fatalf("%v %t", err, replayed)
	}
	if got := sessiontest.Bash(t, s, "cat $INPUT_DIR/data"); got.Stdout != "x" {
		t.Errorf("%+v", got)
	}
	if again, replayed, err := next.Sessions.CreateOnce(ctx, sessiontest.Owner, req); err != nil || !replayed ||
		again != s {
		t.Errorf("the one that is whole: %v %t", err, replayed)
	}
	if got := sandboxes(t, next.Runtime); len(got) != 1 {
		t.Errorf("there are %v", got)
	}
}

// TestKeyedCommandWaitsForItsShell checks that the client of a keyed command need not wait until its shell is free,
// and that the end of the daemon does not wait either.
func TestKeyedCommandWaitsForItsShell(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	start(t, s, proto.Cmd{Command: "sleep 1000", Shell: "a", Detach: true})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, err := s.ExecOnce(ctx, proto.Cmd{Command: "true", Shell: "a", IdempotencyKey: "once"})
		done <- err
	}()
	if err := within(t, "the request", done); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	go func() { done <- st.Sessions.Close() }()
	if err := within(t, "the end of the daemon", done); err != nil {
		t.Error(err)
	}
}

// TestDeletedBeforeItsFirstStart checks a container that a client finds in a list and deletes before its first start:
// it is never started, and nothing is left.
func TestDeletedBeforeItsFirstStart(t *testing.T) {
	ctx := context.Background()
	rt, st := faulty(t, session.Config{})
	var starts atomic.Int64
	rt.started = func() { starts.Add(1) }
	let := holdLedger(t, st)
	created, deleted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{})
		created <- err
	}()
	var list []proto.Container
	for len(list) == 0 {
		list, _, _ = st.Sessions.List(sessiontest.Owner, session.Filter{})
	}
	s, err := st.Sessions.Get(sessiontest.Owner, list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	go func() { deleted <- st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false) }()
	for !s.InTransition() {
		time.Sleep(time.Millisecond)
	}
	let()
	if err := within(t, "deleting", deleted); err != nil {
		t.Error(err)
	}
	wantCode(t, within(t, "creating", created), proto.NotFound, s.ID())
	if inv, err := rt.List(ctx); err != nil || len(inv.Sandboxes)+len(inv.Workspaces) > 0 || starts.Load() > 0 {
		t.Errorf("after %d starts there are left: %+v %v", starts.Load(), inv, err)
	}
}

// TestSweepUnderALongDelete checks that a slow removal of one container does not delay the sweep of others.
func TestSweepUnderALongDelete(t *testing.T) {
	ctx := context.Background()
	now := newClock()
	rt, st := faulty(t, session.Config{Now: now.Now})
	gone := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60})
	for range 3 {
		st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60})
	}
	reached, let := make(chan struct{}), make(chan struct{})
	rt.removeWorkspace = func() error { close(reached); <-let; return nil }
	deleted := make(chan error, 1)
	go func() { deleted <- st.Sessions.Delete(ctx, sessiontest.Owner, gone.ID(), false) }()
	<-reached
	now.Add(time.Hour)
	done, err := sweptSoon(t, st)
	close(let)
	if want := (session.Swept{Stopped: 3}); err != nil || done != want {
		t.Errorf("the sweep did %+v, %v; want %+v", done, err, want)
	}
	if err := within(t, "deleting", deleted); err != nil {
		t.Error(err)
	}
}

// sweptSoon runs a sweep that must not wait for another goroutine.
func sweptSoon(t *testing.T, st *sessiontest.Stack) (session.Swept, error) {
	t.Helper()
	type result struct {
		done session.Swept
		err  error
	}
	swept := make(chan result, 1)
	go func() {
		done, err := st.Sessions.Sweep(context.Background())
		swept <- result{done, err}
	}()
	select {
	case r := <-swept:
		return r.done, r.err
	case <-time.After(10 * time.Second):
		t.Error("the sweep waits")
		return session.Swept{}, nil
	}
}

// TestSweepWaitsForNoTransition checks that a sweep skips a session in transition, leaves its work to the next sweep,
// and does not count it before.
func TestSweepWaitsForNoTransition(t *testing.T) {
	type fixture struct {
		rt  *faultRuntime
		st  *sessiontest.Stack
		s   *session.Session
		now *clock
	}
	for what, due := range map[string]struct {
		begin func(fixture)
		want  session.Swept
	}{
		"pause":  {func(f fixture) { f.now.Add(20 * time.Second) }, session.Swept{Paused: 1}},
		"stop":   {func(f fixture) { f.now.Add(2 * time.Minute) }, session.Swept{Stopped: 1}},
		"expiry": {func(f fixture) { f.now.Add(time.Hour) }, session.Swept{Expired: 1}},
		"loss":   {func(f fixture) { f.rt.Kill(f.s.ID()) }, session.Swept{Lost: 1}},
		"removal": {func(f fixture) {
			f.rt.armed = "remove"
			_ = f.st.Sessions.Delete(context.Background(), sessiontest.Owner, f.s.ID(), false)
		}, session.Swept{Finished: 1}},
		"rest of an expiry": {func(f fixture) {
			f.now.Add(time.Hour)
			f.rt.armed = "remove"
			_, _ = f.st.Sessions.Sweep(context.Background())
		}, session.Swept{}},
	} {
		t.Run(what, func(t *testing.T) {
			now := newClock()
			rt := &faultRuntime{Runtime: sessiontest.NewRuntime(t)}
			st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{Now: now.Now,
				PauseAfter: 10 * time.Second})
			s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60, MaxLifetimeSeconds: 600})
			due.begin(fixture{rt, st, s, now})
			unlock := s.HoldLife()
			done, err := sweptSoon(t, st)
			unlock()
			if err != nil || done != (session.Swept{}) {
				t.Errorf("under somebody else's transition the sweep did %+v, %v", done, err)
			}
			if t.Failed() {
				return
			}
			if done := sweep(t, st); done != due.want {
				t.Errorf("after it the sweep did %+v, want %+v", done, due.want)
			}
			if inv, _ := rt.List(context.Background()); what == "rest of an expiry" && len(inv.Workspaces) > 0 {
				t.Errorf("left: %+v", inv)
			}
		})
	}
}

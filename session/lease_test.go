package session_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

// TestOpenReaderDoesNotOutliveTheCap checks that a reader that is never closed does not keep a container past its
// cap.
func TestOpenReaderDoesNotOutliveTheCap(t *testing.T) {
	ctx := context.Background()
	clock := newClock()
	st := sessiontest.New(t, session.Config{Now: clock.Now})
	s := st.Create(t, proto.CreateContainer{MaxLifetimeSeconds: 3600})
	if _, err := s.WriteFile(ctx, proto.UserDefault, "/workspace/f", session.WriteOptions{Mode: 0o644},
		strings.NewReader(strings.Repeat("x", 8<<20))); err != nil {
		t.Fatal(err)
	}
	r, _, err := s.ReadFile(ctx, proto.UserDefault, "/workspace/f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	clock.Add(time.Hour + time.Minute)
	if done := sweep(t, st); done.Expired != 0 {
		t.Errorf("it was taken from its reader at once: %+v", done)
	}
	clock.Add(10 * time.Minute)
	if done := sweep(t, st); done.Expired != 1 || len(sandboxes(t, st.Runtime)) != 0 {
		t.Errorf("%+v, %v run", done, sandboxes(t, st.Runtime))
	}
	if _, err := io.Copy(io.Discard, r); err == nil {
		t.Error("the reader got all of a file that is gone")
	}
}

// twoClocks are a wall clock that the test can set and a monotonic one that it cannot.
type twoClocks struct {
	wall  *clock
	since *clock
	begin time.Time
}

func newTwoClocks() *twoClocks {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &twoClocks{wall: &clock{t: at}, since: &clock{t: at}, begin: at}
}

func (c *twoClocks) config(cfg session.Config) session.Config {
	cfg.Now, cfg.Elapsed = c.wall.Now, func() time.Duration { return c.since.Now().Sub(c.begin) }
	return cfg
}

// pass lets time pass on both clocks; set moves the wall clock only.
func (c *twoClocks) pass(d time.Duration) { c.wall.Add(d); c.since.Add(d) }

func (c *twoClocks) set(by time.Duration) { c.wall.Add(by) }

// sweeps returns a function that sweeps after some time and checks the result exactly.
func (c *twoClocks) sweeps(t *testing.T, st *sessiontest.Stack) func(pass time.Duration, want session.Swept) {
	return func(pass time.Duration, want session.Swept) {
		t.Helper()
		c.pass(pass)
		if got, err := st.Sessions.Sweep(t.Context()); err != nil || got != want {
			t.Fatalf("swept %+v, %v; want %+v", got, err, want)
		}
	}
}

// unused waits until no operation holds any of the sessions: a command's end is reported a moment before its session
// is released.
func unused(all ...*session.Session) {
	for _, s := range all {
		for s.Users() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

func TestWallClockThatIsSetDoesNotTouchLeases(t *testing.T) {
	for _, by := range []time.Duration{5 * time.Hour, -5 * time.Hour, 80 * 365 * 24 * time.Hour,
		-50 * 365 * 24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			c := newTwoClocks()
			st := sessiontest.New(t, c.config(session.Config{}))
			s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60, MaxLifetimeSeconds: 600})
			c.set(by)
			if done := sweep(t, st); done.Stopped+done.Expired != 0 {
				t.Fatalf("the clock was set, and the sweep did %+v", done)
			}
			info := s.Info()
			if left := info.ExpiresAt.Sub(c.wall.Now()); left != time.Minute {
				t.Errorf("by the wall clock %v are left, want a minute", left)
			}
			if left := info.MaxExpiresAt.Sub(c.wall.Now()); left != 10*time.Minute {
				t.Errorf("by the wall clock the cap is %v away, want ten minutes", left)
			}
			c.pass(59 * time.Second)
			if done := sweep(t, st); done.Stopped != 0 {
				t.Error("stopped a second early")
			}
			c.pass(time.Second)
			if done := sweep(t, st); done.Stopped != 1 {
				t.Errorf("an idle session goes on: %+v", done)
			}
			st.Reopen(t)
			s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
			if err != nil {
				t.Fatal(err)
			}
			if left := s.Info().MaxExpiresAt.Sub(c.wall.Now()); left != 9*time.Minute {
				t.Errorf("after a restart the cap is %v away, want nine minutes", left)
			}
			c.pass(9 * time.Minute)
			if done := sweep(t, st); done.Expired != 1 {
				t.Errorf("past its cap: %+v", done)
			}
		})
	}
}

// TestWallClockSetBackBetweenTwoDaemons checks a wall clock that was set back while no daemon ran. The daemon cannot
// distinguish that from a clock that was wrong before.
func TestWallClockSetBackBetweenTwoDaemons(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{}))
	id := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60, MaxLifetimeSeconds: 600}).ID()
	st.Close(t)
	c.set(-24 * time.Hour)
	st.Open(t)
	s, err := st.Sessions.Get(sessiontest.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	if left := s.Info().MaxExpiresAt.Sub(c.wall.Now()); left != 10*time.Minute {
		t.Errorf("the cap is %v away, want ten minutes", left)
	}
	c.pass(10 * time.Minute)
	if done := sweep(t, st); done.Expired != 1 {
		t.Errorf("kept past its cap: %+v", done)
	}
}

func TestSweepNoticesASandboxThatDied(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "echo kept >note")
	if done := sweep(t, st); done.Lost != 0 {
		t.Fatalf("a live one is lost: %+v", done)
	}
	st.Runtime.(*sessiontest.Runtime).Kill(s.ID())
	if done := sweep(t, st); done.Lost != 1 || s.Info().State != proto.StateStopped {
		t.Errorf("after %+v it is told as %s", done, s.Info().State)
	}
	if inv := sandboxes(t, st.Runtime); len(inv) != 0 {
		t.Errorf("left: %v", inv)
	}
	if got := sessiontest.Bash(t, s, "cat note").Stdout; got != "kept\n" {
		t.Errorf("the file holds %q", got)
	}
}

// TestSlowGuestIsNotLost checks that a slow guest, as on a busy machine, does not count as lost.
func TestSlowGuestIsNotLost(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	st.Runtime.(*sessiontest.Runtime).Freeze(s.ID(), true)
	done := sweep(t, st)
	st.Runtime.(*sessiontest.Runtime).Freeze(s.ID(), false)
	if done.Lost != 0 || s.Info().State != proto.StateRunning || s.Info().Generation != 1 {
		t.Errorf("after %+v it is %s", done, s.Info().State)
	}
	sessiontest.Bash(t, s, "true")
}

// TestSweptLeaseOutlivesACrash checks that a crash and the end of the sandbox do not undo a lease that a sweep saw.
func TestSweptLeaseOutlivesACrash(t *testing.T) {
	now := newClock()
	st := sessiontest.New(t, session.Config{Now: now.Now})
	s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60})
	now.Add(30 * time.Second)
	sessiontest.Bash(t, s, "true")
	for s.Users() > 0 { // which is a moment after the answer
	}
	sweep(t, st)
	used, swept := now.Now(), ledgerNow(t, st)
	st.Runtime.(*sessiontest.Runtime).Kill(s.ID())
	rollBack(t, st, swept)
	s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil || !s.Info().LastUsedAt.Equal(used) {
		t.Errorf("used at %v, and known as used at %v (%v)", used, s.Info().LastUsedAt, err)
	}
}

// rollBack replaces the ledger by an older one, as the restore of a backup does.
func rollBack(t *testing.T, st *sessiontest.Stack, to []byte) {
	t.Helper()
	st.Close(t)
	if err := os.WriteFile(filepath.Join(st.Dir, "ledger.db"), to, 0o600); err != nil {
		t.Fatal(err)
	}
	st.Open(t)
}

func ledgerNow(t *testing.T, st *sessiontest.Stack) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy")
	if err := st.Ledger.Copy(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRolledBackLedgerLosesNoFiles(t *testing.T) {
	ctx := context.Background()
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{}))
	old := ledgerNow(t, st)
	s := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "echo precious >/workspace/note")
	newer := ledgerNow(t, st)

	rollBack(t, st, old)
	inv, _ := st.Runtime.List(ctx)
	if len(inv.Sandboxes) != 0 || !slices.Equal(inv.Workspaces, []string{s.WorkspaceID()}) {
		t.Fatalf("an older ledger left %+v, want the workspace alone", inv)
	}
	c.pass(6 * 24 * time.Hour)
	sweep(t, st)
	rollBack(t, st, newer)
	s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if got := sessiontest.Bash(t, s, "cat /workspace/note").Stdout; got != "precious\n" {
		t.Errorf("with the right ledger back the file holds %q", got)
	}

	rollBack(t, st, old)
	c.pass(7 * 24 * time.Hour)
	if done := sweep(t, st); done.Workspaces != 2 { // with its layer
		t.Errorf("a stray is kept past its time: %+v", done)
	}
}

func TestStraysGoOnRequest(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	old := ledgerNow(t, st)
	st.Create(t, proto.CreateContainer{})
	rollBack(t, st, old)
	mine := st.Create(t, proto.CreateContainer{})
	if n, err := st.Sessions.RemoveOrphanedWorkspaces(ctx); n != 2 || err != nil { // with its layer
		t.Errorf("%d removed, %v", n, err)
	}
	if inv, _ := st.Runtime.List(ctx); !slices.Equal(inv.Workspaces, []string{mine.WorkspaceID()}) {
		t.Errorf("left: %v", inv.Workspaces)
	}
	if n, err := st.Sessions.RemoveOrphanedWorkspaces(ctx); n != 0 || err != nil {
		t.Errorf("%d removed again, %v", n, err)
	}
}

func TestWorkIsBoundToItsGeneration(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	bound := func(n int64) error {
		_, err := s.Run(ctx, proto.Cmd{Command: "true", Generation: n})
		return err
	}
	old, err := s.Exec(ctx, proto.Cmd{Command: "cat", OpenStdin: true})
	if err != nil || old.Info().Generation != 1 {
		t.Fatalf("%+v %v", old.Info(), err)
	}
	if err := bound(1); err != nil {
		t.Fatal(err)
	}
	wantCode(t, bound(2), proto.Conflict, "generation 1")
	wantCode(t, bound(-1), proto.InvalidArgument, "generation")
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	wantCode(t, bound(1), proto.Conflict, "generation 1")
	if s.Info().State != proto.StateStopped {
		t.Error("a refused command started the container")
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	wantCode(t, bound(1), proto.Conflict, "at generation 2 and generation 1")
	_, err = s.InGeneration(1).WriteFile(ctx, "", "/workspace/x", session.WriteOptions{}, nil)
	wantCode(t, err, proto.Conflict, "generation 1")
	wantCode(t, old.Write(ctx, []byte("x")), proto.Conflict, old.ID())
	wantCode(t, old.Signal(ctx, "TERM"), proto.Conflict, old.ID())
	if err := bound(2); err != nil {
		t.Error(err)
	}
}

// TestBoundWorkDoesNotReviveTheLost checks that a command that is bound to a lost generation does not run in the next
// one.
func TestBoundWorkDoesNotReviveTheLost(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	st.Runtime.(*sessiontest.Runtime).Kill(s.ID())
	_, err := s.Run(ctx, proto.Cmd{Command: "touch /workspace/ran", Generation: 1})
	wantCode(t, err, proto.Conflict, "generation 1")
	if g := s.Info().Generation; g != 1 {
		t.Errorf("it was started again, as generation %d", g)
	}
	if got := sessiontest.Bash(t, s, "ls /workspace/ran 2>/dev/null; echo no").Stdout; got != "no\n" {
		t.Errorf("the command ran in the successor: %q", got)
	}
}

func TestLedgerBackups(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	if _, err := st.Ledger.Backup(0); err != nil {
		t.Fatal(err)
	}
	st.Close(t)
	path := filepath.Join(st.Dir, "ledger.db")
	if err := os.Truncate(path, 9000); err != nil {
		t.Fatal(err)
	}
	if db, err := ledger.Open(path); err == nil {
		db.Close()
		t.Fatal("a torn ledger was opened")
	}
	if err := os.Rename(path+".1", path); err != nil {
		t.Fatal(err)
	}
	st.Open(t)
	if _, err := st.Sessions.Get(sessiontest.Owner, s.ID()); err != nil {
		t.Error(err)
	}
}

// TestWaitForRoomIsByTheLeaseClock checks that the time that a client is told to wait is by the clock of the leases.
func TestWaitForRoomIsByTheLeaseClock(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{MaxSessions: 1}))
	st.Create(t, proto.CreateContainer{MaxLifetimeSeconds: 40})
	for _, by := range []time.Duration{0, 5 * time.Hour, -10 * time.Hour} {
		c.set(by)
		_, err := st.Sessions.Create(t.Context(), sessiontest.Owner, proto.CreateContainer{})
		wantCode(t, err, proto.TooMany, "1 containers")
		if wait := proto.AsError(err).RetryAfter; wait != 40 {
			t.Errorf("with the wall clock set by %v one is to wait for %v s, want 40", by, wait)
		}
	}
}

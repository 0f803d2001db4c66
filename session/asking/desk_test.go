package asking_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/egress"
	"berth/proto"
	"berth/session"
	"berth/session/asking"
	"berth/test/sessiontest"
)

// A wait is a connection that waits for a decision.
type wait struct {
	permit *egress.Permit
	err    error
}

// ask has a connection of a session wait, and returns the ID of the approval if it is the first one.
func ask(ctx context.Context, d *asking.Desk, s *session.Session, host string) (id string, done chan wait) {
	done = make(chan wait, 1)
	first := make(chan string, 1)
	go func() {
		p, err := d.For(s)(ctx, egress.Target{Name: host, Port: 443}, func(id string) { first <- id })
		done <- wait{p, err}
	}()
	select {
	case id = <-first:
	case w := <-done:
		done <- w
	}
	return id, done
}

func create(t *testing.T, st *sessiontest.Stack, owner string) *session.Session {
	t.Helper()
	s, err := st.Sessions.Create(context.Background(), owner, proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What waits is bounded for a container and for an owner, and what exceeds it is refused at once.
func TestBounds(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var all []chan wait
	defer func() {
		cancel()
		for _, done := range all {
			if w := <-done; w.err == nil {
				t.Errorf("let through: %+v", w.permit)
			}
		}
		if left := st.Desk.Waiting("ann"); len(left) != 64 || left[0].Connections != 0 {
			t.Errorf("%d wait with %d connections", len(left), left[0].Connections)
		}
	}()
	for n := range 5 {
		s, parked := create(t, st, "ann"), 0
		for i := range 20 {
			id, done := ask(ctx, st.Desk, s, fmt.Sprintf("h%d.example", i))
			if all = append(all, done); id != "" {
				parked++
			}
		}
		if want := []int{16, 16, 16, 16, 0}[n]; parked != want {
			t.Errorf("%d hosts of container %d wait, want %d", parked, n, want)
		}
	}
	if id, done := ask(ctx, st.Desk, create(t, st, "bob"), "h.example"); id == "" {
		t.Errorf("another owner's is refused: %+v", <-done)
	} else {
		all = append(all, done)
	}
}

// Decisions that count until commands end are bounded, too, and the refusal says that they are too many.
func TestKeptDecisions(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := create(t, st, "ann")
	t.Cleanup(asking.Keep(st.Desk, s, 256))
	id, done := ask(context.Background(), st.Desk, s, "h.example")
	w := <-done
	if id != "" || !strings.Contains(w.err.Error(), "too many decisions about hosts of this container count") {
		t.Errorf("%s %v", id, w.err)
	}
}

// One container cannot have more than 32 connections wait for one decision; all of them get it.
func TestConnections(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := create(t, st, "ann")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	id, first := ask(ctx, st.Desk, s, "h.example")
	var refused sync.WaitGroup
	results := make(chan wait, 50)
	refused.Add(50 - 31)
	for range 50 {
		go func() {
			p, err := st.Desk.For(s)(ctx, egress.Target{Name: "h.example", Port: 443}, func(string) {
				t.Error("asked twice")
			})
			if w := (wait{p, err}); egress.RefusalOf(err).Reason == "not_asked" && err != nil {
				refused.Done()
			} else {
				results <- w
			}
		}()
	}
	refused.Wait()
	if v, err := st.Desk.Get("ann", id); err != nil || v.Connections != 32 {
		t.Errorf("%+v %v", v, err)
	}
	if _, err := st.Desk.Get("bob", id); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("another owner reads it: %v", err)
	}
	if _, err := st.Desk.Refuse(ctx, "bob", id, proto.Refusing{}); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("another owner decides: %v", err)
	}
	// This session has no network, so nobody can decide any more.
	if _, err := st.Desk.Approve(ctx, "ann", id, proto.Approving{}); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("%v", err)
	}
	cancel()
	for range 31 {
		if w := <-results; !errors.Is(w.err, context.Canceled) {
			t.Errorf("%+v", w)
		}
	}
	if w := <-first; !errors.Is(w.err, context.Canceled) {
		t.Errorf("%+v", w)
	}
}

// Nobody is asked about a name that has a secret of the container in it, and what nobody decides about ends with its
// container.
func TestSecretsAndEnds(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s, err := st.Sessions.Create(context.Background(), "ann", proto.CreateContainer{Secrets: map[string]string{
		"TOKEN": "hunter2hunter2"}})
	if err != nil {
		t.Fatal(err)
	}
	id, done := ask(context.Background(), st.Desk, s, "hunter2hunter2.example")
	if w := <-done; id != "" || w.err == nil || !strings.Contains(w.err.Error(), "nobody is asked") {
		t.Errorf("%s %+v", id, w)
	}
	id, done = ask(context.Background(), st.Desk, s, "h.example")
	if err := st.Sessions.Delete(context.Background(), "ann", s.ID(), false); err != nil {
		t.Fatal(err)
	}
	if swept, err := st.Desk.Sweep(context.Background()); err != nil || swept.Ended != 1 {
		t.Errorf("%+v %v", swept, err)
	}
	if w := <-done; egress.RefusalOf(w.err).Reason != "not_decided" {
		t.Errorf("%+v", w)
	}
	if v, err := st.Desk.Get("ann", id); err != nil || v.State != proto.ApprovalCanceled {
		t.Errorf("%+v %v", v, err)
	}
}

// An approval is forgotten after a week.
func TestOldRecordsGo(t *testing.T) {
	now := time.Now()
	st := sessiontest.New(t, session.Config{Now: func() time.Time { return now }})
	s := create(t, st, "ann")
	ctx, cancel := context.WithCancel(context.Background())
	id, done := ask(ctx, st.Desk, s, "h.example")
	cancel()
	<-done
	if err := st.Sessions.Delete(context.Background(), "ann", s.ID(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Desk.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(8 * 24 * time.Hour)
	if swept, err := st.Desk.Sweep(context.Background()); err != nil || swept.Forgotten != 1 {
		t.Errorf("%+v %v", swept, err)
	}
	if _, err := st.Desk.Get("ann", id); proto.CodeOf(err) != proto.NotFound {
		t.Error(err)
	}
}

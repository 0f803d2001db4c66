package session_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"berth/ledger"
	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// droppedJobs is the books of jobs; it notes an end that is booked after they were dropped.
type droppedJobs struct {
	heldJobs
	dropped chan struct{} // closed by Drop
	late    atomic.Bool
}

func (d *droppedJobs) End(ctx context.Context, s *session.Session, e proto.Exec, tail string, seen session.Sight) session.Produced {
	made := d.heldJobs.End(ctx, s, e, tail, seen)
	select {
	case <-d.dropped:
		d.late.Store(true)
	case <-time.After(300 * time.Millisecond): // there is no event for what does not happen
	}
	return made
}

func (d *droppedJobs) Drop(ctx context.Context, workspace string) error {
	close(d.dropped)
	return d.heldJobs.Drop(ctx, workspace)
}

// What an exec books after its books were dropped would stay in the ledger for ever.
func TestBooksAreDroppedAfterTheLastEnd(t *testing.T) {
	ctx := context.Background()
	rt, st := faulty(t, session.Config{})
	if err := st.Sessions.Close(); err != nil {
		t.Fatal(err)
	}
	ended, removing := make(chan struct{}), make(chan struct{})
	jobs := &droppedJobs{dropped: make(chan struct{})}
	jobs.heldJobs = heldJobs{Jobs: st.Jobs, ending: func(context.Context, *session.Session) { close(ended); <-removing }}
	var err error
	st.Sessions, err = session.Open(ctx, session.Config{Dir: st.Dir, Runtime: rt, Images: st.Images, Ledger: st.Ledger, Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	s := st.Create(t, proto.CreateContainer{})
	if _, err := s.Exec(ctx, proto.Cmd{Command: "echo x >made"}); err != nil {
		t.Fatal(err)
	}
	<-ended
	rt.stopping = func() error { close(removing); return nil }
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
		t.Fatal(err)
	}
	rt.stopping = nil
	if jobs.late.Load() {
		t.Error("an end was booked in books that were dropped")
	}
	_ = st.Ledger.View(func(tx *ledger.Tx) error {
		for _, bucket := range []string{"execs", "jobs", "job_execs"} {
			_ = tx.Scan(bucket, "", func(key string, _ []byte) (bool, error) { t.Errorf("left: %s/%s", bucket, key); return true, nil })
		}
		return nil
	})
}

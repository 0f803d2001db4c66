package artifacts

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
)

func openJobs(t *testing.T) *Jobs {
	t.Helper()
	books, err := ledger.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { books.Close() })
	return New(Config{Ledger: books})
}

// TestUnknownJobsAreNotKept checks that requests for unknown job IDs take no memory.
func TestUnknownJobsAreNotKept(t *testing.T) {
	js := openJobs(t)
	for i := range 1000 {
		if _, err := js.Manifest(context.Background(), &session.Session{}, fmt.Sprint("never", i)); proto.CodeOf(
			err) != proto.NotFound {
			t.Fatal(err)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	_, done, err := js.lockJob(gone, "w", "held")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, _, err := js.lockJob(gone, "w", "held"); err == nil {
		t.Error("two have the turn")
	}
	if done(); len(js.open) != 0 {
		t.Errorf("%d jobs are open", len(js.open))
	}
}

// share is approximately how many jobs of these tests fit into the memory limit.
const share = 64

// use fills the record of a new job. It returns how many files the record had. It does not wait for the ledger, so
// its queued writes are still pending.
func use(t *testing.T, js *Jobs, id string) int {
	t.Helper()
	j, done, err := js.lockJob(context.Background(), "w", id)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	n := len(j.files)
	if !j.known() {
		j.rec.Created = time.Now()
		j.set("f", entry{Artifact: proto.Artifact{Path: "f"}})
		j.recent = make([]span, maxIdleBytes/share/spanBytes)
		js.save(j)
	}
	return n
}

// TestIdleBooksArePutAway checks that idle jobs leave memory, and that none of their files is lost.
func TestIdleBooksArePutAway(t *testing.T) {
	js := openJobs(t)
	const many = 2 * share
	for i := range many {
		if use(t, js, fmt.Sprint(i)) != 0 || use(t, js, "often") != 1 && i > 0 {
			t.Fatal("the books are not their own")
		}
		if js.idle > maxIdleBytes {
			t.Fatalf("%d jobs with %d bytes are idle", len(js.open), js.idle)
		}
	}
	if _, open := js.open["w/0"]; open || js.open["w/often"] == nil || len(js.open) < many/4 {
		t.Errorf("%d jobs are open, the oldest %v", len(js.open), open)
	}
	for i := range many {
		if n := use(t, js, fmt.Sprint(i)); n != 1 {
			t.Fatalf("job %d has %d files after it was put away", i, n)
		}
	}
	if err := js.Drop(context.Background(), "w"); err != nil || js.idle != 0 || len(js.open) != 0 {
		t.Errorf("%d bytes of %d jobs are left: %v", js.idle, len(js.open), err)
	}
}

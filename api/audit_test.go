package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/state/audit"
	"berth/state/ledger"
	"berth/test/needs"

	"golang.org/x/sys/unix"
)

// openLog opens the audit log in a directory. The caller closes it.
func openLog(t *testing.T, dir string) *audit.Log {
	t.Helper()
	books, err := ledger.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { books.Close() })
	log, err := audit.Open(audit.Config{Dir: dir, Ledger: books, RetryEvery: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// While the audit log's disk is really full, nothing is done that would have to be in it; looking goes on, and so
// does everything once there is room.
func TestFullAuditLogRefusesChanges(t *testing.T) {
	dir := t.TempDir()
	needs.Root(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	log := openLog(t, dir)
	done := 0
	answer := func(w http.ResponseWriter, _ *http.Request, _ Caller) error {
		done++
		return JSON(w, http.StatusOK, "done")
	}
	s, err := New(Config{Auth: oneKey(testKey), Audit: log, Edges: []Edge{{Dialect: Plain, Routes: []Route{
		{Method: "POST", Pattern: "/change", Where: None, Handle: answer},
		{Method: "GET", Pattern: "/look", Where: None, Handle: answer},
		{Method: "GET", Pattern: "/take", Where: None, Handle: answer, Act: "take"},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("X-Api-Key", testKey)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	filler := filepath.Join(dir, "filler")
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	for i := 0; log.Ready() == nil; i++ { // the last page of the log has room for some
		if status, _ := ask("POST", "/change"); status != 200 || i > 100 {
			t.Fatalf("%d after %d", status, i)
		}
	}
	before := done
	for path, method := range map[string]string{"/change": "POST", "/take": "GET"} {
		if status, body := ask(method, path); status != 503 || !strings.Contains(body, "audit log") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if done != before {
		t.Error("something was done that the log cannot tell")
	}
	if status, _ := ask("GET", "/look"); status != 200 {
		t.Errorf("looking: %d", status)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); log.Ready() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is room, and it is not used")
		}
	}
	if status, _ := ask("POST", "/change"); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	told := 0
	err = audit.Read(dir, audit.Filter{Action: "POST /change"}, func([]byte) error { told++; return nil })
	if r, verr := audit.Verify(dir); err != nil || verr != nil || r.Bad != nil || told != done-1 { // one only looked
		t.Errorf("%d entries of %d changes: %+v %v %v", told, done-1, r.Bad, err, verr)
	}
}

// A stream has its audit line while it flows, because its reader may never reach the end. The header is sent at once,
// even if the first event comes later.
func TestStreamsAreToldWhenTheyBegin(t *testing.T) {
	dir := t.TempDir()
	told := func() (outcomes []string) {
		err := audit.Read(dir, audit.Filter{Action: "follow"}, func(line []byte) error {
			var e proto.AuditEntry
			err := json.Unmarshal(line, &e)
			outcomes = append(outcomes, e.Outcome)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return outcomes
	}
	log := openLog(t, dir)
	defer log.Close()
	s, err := New(Config{Auth: oneKey(testKey), Audit: log, Edges: []Edge{{Dialect: Plain, Routes: []Route{
		{Method: "GET", Pattern: "/follow", Where: None,
			Act: "follow", Handle: func(w http.ResponseWriter, r *http.Request,
				_ Caller) error {
				es := NewEventStream(w, r)
				defer es.Close()
				<-es.Context().Done()
				return es.Context().Err()
			}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	addr, stop, served := serving(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), heartbeat/2)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+addr+"/follow", nil)
	req.Header.Set("X-Api-Key", testKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	during := told()
	res.Body.Close()
	if !slices.Equal(during, []string{proto.AuditOK}) {
		t.Errorf("%q", during)
	}
	stop()
	<-served
	if after := told(); len(after) != 1 {
		t.Errorf("it is told again at its end: %q", after)
	}
}

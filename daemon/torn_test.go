package daemon_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
)

// documentedRestore returns the manual's commands for restoring an unreadable ledger.
func documentedRestore(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```sh\n(mv DATA/ledger.db .*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatal("the manual has no commands to restore the ledger with")
	}
	return strings.ReplaceAll(string(m[1]), "DATA", dir)
}

// TestTornLedgerIsRestored checks that the daemon does not start with a torn ledger, and names the backup to use.
// After the documented restore it has the state of the backup. Workspaces of newer containers are set aside, not
// deleted.
func TestTornLedgerIsRestored(t *testing.T) {
	s := base
	books := filepath.Join(s.Dir, "ledger.db")
	old := noteIn(t, s, proto.ClassRunc)
	stored := storedFile(t, s, "content")
	for _, name := range []string{books + ".1", books + ".2"} {
		_ = os.Remove(name) // the next start then makes a backup
	}
	s.restart(t, syscall.SIGKILL)
	young := noteIn(t, s, proto.ClassRunc)
	s.Stop(syscall.SIGKILL)
	// keep the two meta pages, which locate all others
	if err := os.Truncate(books, 3*int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err == nil || !strings.Contains(err.Error(),
		"ledger.db.1 in the data directory is a good backup") {
		t.Fatalf("with a torn ledger: %v", err)
	}
	if out, err := exec.Command("sh", "-ec", documentedRestore(t, s.Dir)).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	holdsNote(t, s, old, "kept")
	if status, out, err := s.Do("GET", "/v1/files/"+stored+"/content", nil); err != nil || status != http.StatusOK ||
		string(out) != "content" {
		t.Errorf("the stored file: %d %v %s", status, err, out)
	}
	if status, _, err := s.Do("GET", "/v1/containers/"+young, nil); err != nil || status != http.StatusNotFound {
		t.Errorf("a container that the backup does not know: %d %v", status, err)
	}
	s.setAside(t, 1)
	call[any](t, s, 200, "POST", "/v1/sweep?strangers=true", "")
	s.setAside(t, 0)
}

// setAside checks how many workspaces on disk the daemon does not know.
func (s *server) setAside(t *testing.T, want int) {
	t.Helper()
	var on, known int
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		on, known = s.workspaces(t), len(call[struct{ Data []any }](t, s, 200, "GET", "/v1/workspaces", "").Data)
		if on-known == want {
			return
		}
	}
	t.Errorf("%d workspaces are on disk and %d are known, want %d set aside", on, known, want)
}

package daemon_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLostJournal checks that a daemon does not start without records that it acknowledged, names the file and the
// flag, and starts with the flag. The audit log is not accused of what the ledger lost.
func TestLostJournal(t *testing.T) {
	d := bare(t)
	if status, out, err := d.Do("POST", "/v1/keys", strings.NewReader(`{"owner":"me"}`)); err != nil ||
		status != http.StatusCreated {
		t.Fatalf("%d %s %v", status, out, err)
	}
	d.Stop(syscall.SIGKILL)
	if err := os.Remove(filepath.Join(d.Dir, "ledger.db.log")); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err == nil || !strings.Contains(err.Error(), "ledger.db.log is damaged") ||
		!strings.Contains(err.Error(), "--accept-loss=journal") {
		t.Fatalf("started without the journal: %v", err)
	}
	flags := d.Flags
	d.Flags = append(flags, "--accept-loss=journal")
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if log := d.Log(); !strings.Contains(log, "records are lost") || strings.Contains(log, "audit log is not") {
		t.Errorf("the log says %s", log)
	}
	d.Stop(syscall.SIGKILL)
	d.Flags = flags
	if err := d.Start(); err != nil {
		t.Errorf("the next start: %v", err)
	}
}

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

// TestLostPool checks that a daemon does not make a new pool in place of one that is gone, and that a container whose
// files are gone says so at its next use.
func TestLostPool(t *testing.T) {
	d := &server{bare(t)}
	if err := d.ImportImage("base", os.Getenv("BERTH_BASE_IMAGE")); err != nil {
		t.Fatal(err)
	}
	c := create(t, d)
	bash(t, d, c.ID, "echo kept >/workspace/note")
	img, flags := filepath.Join(d.Dir, "runtime", "pool.img"), d.Flags
	refuses := func(text string) {
		t.Helper()
		err := d.Start()
		for _, text := range []string{text, img, "--accept-loss=workspaces"} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Fatalf("started without its pool: %v", err)
			}
		}
	}
	d.Stop(syscall.SIGTERM)
	if err := os.Rename(img, img+".aside"); err != nil {
		t.Fatal(err)
	}
	refuses("which is missing")
	if _, err := os.Stat(img); err == nil {
		t.Error("the refused start made a new pool")
	}
	d.Flags = append(flags, "--accept-loss=workspaces")
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		status, out, err := d.Do("POST", "/v1/containers/"+c.ID+"/exec", strings.NewReader(`{"command":"ls"}`))
		if err != nil || status != http.StatusNotFound || !strings.Contains(string(out), "are gone") {
			t.Errorf("the container: %d %s %v", status, out, err)
		}
	}
	newer := create(t, d)
	d.Stop(syscall.SIGTERM)
	d.Flags = flags
	if err := d.Start(); err != nil {
		t.Fatalf("the start after the loss was accepted: %v", err)
	}
	bash(t, d, newer.ID, "echo newer >/workspace/note")
	d.Stop(syscall.SIGTERM)
	if err := os.Rename(img+".aside", img); err != nil { // which has the other workspace
		t.Fatal(err)
	}
	refuses(newer.WorkspaceID)
	d.Flags = append(flags, "--accept-loss=workspaces")
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if got := bash(t, d, c.ID, "cat /workspace/note"); got.Result.Result == nil ||
		got.Result.Result.Stdout != "kept\n" {
		t.Errorf("with its pool back: %+v", got)
	}
}

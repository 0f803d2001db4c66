package daemon

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"berth/session"

	"golang.org/x/sys/unix"
)

func TestAuditLogSurvivesAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path, filler := filepath.Join(dir, "audit.log"), filepath.Join(dir, "filler")
	log, err := openAudit(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	entry := session.AuditEntry{Command: string(bytes.Repeat([]byte("x"), 3000))}
	if err := log.write(entry); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	for range 2 { // the first is written in part
		if err := log.write(entry); err == nil {
			t.Fatal("the disk is not full")
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := log.write(entry); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		if json.Valid(line) {
			whole++
		}
	}
	if whole != 2 {
		t.Errorf("%d whole lines of the two that were written", whole)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
}

package keys

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
)

func known(name, _ string) error {
	if name != "A" && name != "B-" {
		return errors.New("write A or B-")
	}
	return nil
}

func TestPairs(t *testing.T) {
	pairs, err := parsePairs([]byte("# keys\n\nA = sk-1=2\n B-=abcd\n"), known)
	if err != nil || len(pairs) != 2 || pairs["A"] != "sk-1=2" || pairs["B-"] != "abcd" {
		t.Errorf("%v %v", pairs, err)
	}
	for text, want := range map[string]string{"secret=1": "line 1: write A or B-", "\nA=": "line 2",
		"A=abcd\nA=secret": "line 2: its name is there twice", "A=sk-1 2 3 secret": "is no key", "A": "no key"} {
		if _, err := parsePairs([]byte(text), known); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestFilesOfPairs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("A=sk-1234\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused := func(path, want string) {
		t.Helper()
		if _, err := ReadPairs(path, "test keys", known); err == nil ||
			!strings.Contains(err.Error(), "the file of test keys "+path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused(path, "chmod 600")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if pairs, err := ReadPairs(path, "test keys", known); err != nil || pairs["A"] != "sk-1234" {
		t.Errorf("%v %v", pairs, err)
	}
	refused(path+"-", "no such file")
	refused(filepath.Dir(path), "no file")
	if err := syscall.Mkfifo(path+".fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	refused(path+".fifo", "no file")
	if err := os.WriteFile(path, make([]byte, maxPairs+1), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(path, "more than")
}

func TestKnows(t *testing.T) {
	b := newBench(t)
	b.reopen(t, "a-key-that-the-operator-wrote")
	made := b.create(t, proto.CreateKey{Owner: "team"})
	for secret, want := range map[string]bool{made.Secret: true, "a-key-that-the-operator-wrote": true, "": false,
		"sk-another": false, "berth_that-may-be-one": true} {
		if b.Knows(secret) != want {
			t.Errorf("Knows(%q) is %v", secret, !want)
		}
	}
}

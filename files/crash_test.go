package files

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// TestMain runs the test program as the crashing process, too: with BERTH_CRASH set it works on a store until it
// kills itself or its parent kills it.
func TestMain(m *testing.M) {
	if step := os.Getenv("BERTH_CRASH"); step != "" {
		victim(step, os.Getenv("BERTH_CRASH_DIR"))
	}
	os.Exit(m.Run())
}

func victim(step, dir string) {
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	must(err)
	s, err := Open(Config{Dir: filepath.Join(dir, "files"), Ledger: db})
	must(err)
	for _, c := range crashes {
		if c.name == step {
			_, err := s.Put(context.Background(), Upload{Owner: "ann"}, strings.NewReader("kept"))
			must(err)
			c.run(s)
			die()
		}
	}
	work(s)
}

// must ends the process on an error. It is for the crashing process, which has no testing.T.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// die kills the process: no deferred function runs, and nothing is flushed.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// A dying reader kills the process when it is read.
type dying struct{}

func (dying) Read([]byte) (int, error) { die(); return 0, nil }

func stage(s *Store, content string) (*Staged, record) {
	pending, err := s.Stage(context.Background(), Upload{Owner: "ann"}, strings.NewReader(content))
	must(err)
	st := pending.(*Staged)
	rec, err := st.record()
	must(err)
	return st, rec
}

// holdLedger keeps the ledger's writer busy until the presence of the content equals until, for at most half a
// second, and then kills the process. A step that waits for the ledger has not happened by then. If the presence of
// the content does not equal want, the process exits with an error.
func holdLedger(s *Store, rec record, until, want bool) {
	held := make(chan struct{})
	there := func() bool { return s.hasBlob(rec.SHA256, rec.SizeBytes) }
	go s.cfg.Ledger.Update(func(*ledger.Tx) error {
		close(held)
		for n := 0; n < 50 && there() != until; n++ {
			time.Sleep(10 * time.Millisecond)
		}
		if there() != want {
			fmt.Fprintln(os.Stderr, "content there:", there())
			os.Exit(4)
		}
		die()
		return nil
	})
	<-held
}

// crashes are the points between the steps of Put and Delete. Each run executes the steps up to its point.
var crashes = []struct {
	name  string
	files int // files that must exist afterwards, besides the one that was kept
	run   func(*Store)
}{
	{"while it arrives", 0, func(s *Store) {
		_, _ = s.Put(context.Background(), Upload{Owner: "ann"}, io.MultiReader(strings.NewReader("half"), dying{}))
	}},
	{"when it has arrived", 0, func(s *Store) { stage(s, "whole") }},
	{"when its content is placed", 0, func(s *Store) {
		st, rec := stage(s, "placed")
		must(s.place(st.path, rec.SHA256, rec.SizeBytes))
	}},
	{"between its content and its record", 0, func(s *Store) {
		st, rec := stage(s, "recording")
		holdLedger(s, rec, true, true)
		must(st.publish(rec))
	}},
	{"before a deleted one's record is gone", 1, func(s *Store) {
		st, rec := stage(s, "deleting")
		must(st.publish(rec))
		holdLedger(s, rec, false, true) // the content must not be removed before its record
		must(s.Delete(context.Background(), "ann", rec.ID))
	}},
	{"when its record is written", 1, func(s *Store) {
		st, rec := stage(s, "recorded")
		must(st.publish(rec))
	}},
	{"when a deleted one's record is gone", 0, func(s *Store) {
		st, rec := stage(s, "deleted")
		must(st.publish(rec))
		must(s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return remove(tx, rec) }))
	}},
}

// work puts and deletes until the process is killed, and prints what it has done.
func work(s *Store) {
	ctx := context.Background()
	for i := 0; ; i++ {
		f, err := s.Put(ctx, Upload{Owner: "ann"}, strings.NewReader(fmt.Sprint("content ", i%5)))
		must(err)
		fmt.Println("put", f.ID, i%5)
		if i%3 == 0 {
			fmt.Println("deleting", f.ID)
			must(s.Delete(ctx, "ann", f.ID))
			fmt.Println("deleted", f.ID)
		}
	}
}

func crashProcess(t *testing.T, step, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "BERTH_CRASH="+step, "BERTH_CRASH_DIR="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// reopen opens the store that a crashed process left.
func reopen(t *testing.T, dir string) *Store {
	t.Helper()
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := Open(Config{Dir: filepath.Join(dir, "files"), Ledger: db})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkWhole checks that disk and ledger agree.
func checkWhole(t *testing.T, s *Store) {
	t.Helper()
	hashes, used := map[string]bool{}, int64(0)
	for q := (Query{Limit: MaxLimit}); ; {
		page, err := s.List(t.Context(), "ann", q)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Files {
			hashes[f.SHA256], used = true, used+f.SizeBytes
			r, _, err := s.Open(t.Context(), "ann", f.ID)
			if err != nil {
				t.Errorf("a record without content: %v", err)
				continue
			}
			r.Close()
		}
		if !page.More {
			break
		}
		q.AfterID = page.Files[len(page.Files)-1].ID
	}
	blobs, _ := os.ReadDir(s.blobDir())
	tmps, _ := os.ReadDir(s.tmpDir())
	if len(blobs) != len(hashes) || len(tmps) != 0 || s.Usage("ann") != used || len(s.Recovered().Missing) != 0 {
		t.Errorf("%d contents for %d hashes, %d unfinished, usage %d of %d, %+v", len(blobs), len(hashes), len(tmps),
			s.Usage("ann"), used, s.Recovered())
	}
}

func TestKilledBetweenSteps(t *testing.T) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := crashProcess(t, c.name, dir).Run(); err == nil ||
				err.(*exec.ExitError).Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the victim was not killed: %v", err)
			}
			s := reopen(t, dir)
			checkWhole(t, s)
			if page, err := s.List(t.Context(), "ann", Query{}); err != nil || len(page.Files) != 1+c.files {
				t.Fatalf("%d files, %v; want %d", len(page.Files), err, 1+c.files)
			}
		})
	}
}

func TestKilledAtAnyTime(t *testing.T) {
	dir := t.TempDir()
	want, unsure := map[string]string{}, map[string]bool{}
	for range 12 {
		cmd := crashProcess(t, "at any time", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := rand.IntN(60) + 1
		for sc, n := bufio.NewScanner(out), 0; sc.Scan(); n++ {
			var verb, id, content string
			fmt.Sscan(sc.Text(), &verb, &id, &content)
			switch verb {
			case "put":
				want[id] = "content " + content
			case "deleting":
				unsure[id] = true
			case "deleted":
				delete(want, id)
				delete(unsure, id)
			}
			if n == stop {
				_ = cmd.Process.Kill() // and read on: lines from before the kill count
			}
		}
		_ = cmd.Wait()
		s := reopen(t, dir)
		checkWhole(t, s)
		for id, content := range want {
			if got, err := readAll(t.Context(), s, id); got != content &&
				!(unsure[id] && proto.CodeOf(err) == proto.NotFound) {
				t.Fatalf("%s holds %q, %v; want %q", id, got, err, content)
			}
		}
		s.cfg.Ledger.Close()
	}
	if len(want) < 12 {
		t.Fatalf("only %d files: the victims did too little", len(want))
	}
}

func readAll(ctx context.Context, s *Store, id string) (string, error) {
	r, _, err := s.Open(ctx, "ann", id)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

// TestMissingContentIsReportedAndHeals checks that damage is reported, that nothing is removed, and that storing the
// same content repairs it.
func TestMissingContentIsReportedAndHeals(t *testing.T) {
	b := newBench(t, Config{})
	f := b.put(t, Upload{}, "precious")
	if err := os.Truncate(b.blobPath(f.SHA256), 3); err != nil {
		t.Fatal(err)
	}
	again, err := Open(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Recovered().Missing; len(got) != 1 || got[0] != f.ID {
		t.Fatalf("reported %v", got)
	}
	if err := os.Remove(b.blobPath(f.SHA256)); err != nil {
		t.Fatal(err)
	}
	_, _, err = again.Open(t.Context(), "ann", f.ID)
	wantCode(t, err, proto.Internal)
	b.put(t, Upload{}, "precious")
	if b.content(t, "ann", f.ID) != "precious" {
		t.Fatal("the content did not come back")
	}
}

func TestStrangersAreRemoved(t *testing.T) {
	b := newBench(t, Config{})
	f := b.put(t, Upload{}, "ours")
	for _, name := range []string{"blobs/" + strings.Repeat("ab", 32), "blobs/stranger", "tmp/upload-1"} {
		if err := os.WriteFile(filepath.Join(b.cfg.Dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	swept, err := b.Sweep(t.Context(), b.now)
	if err != nil || swept != (Swept{Strays: 2, FreedBytes: 2}) {
		t.Fatalf("%+v, %v", swept, err)
	}
	again, err := Open(b.cfg)
	if err != nil || again.Recovered().Uploads != 1 {
		t.Fatalf("%+v, %v", again.Recovered(), err)
	}
	if b.content(t, "ann", f.ID) != "ours" {
		t.Fatal("content changed")
	}
}

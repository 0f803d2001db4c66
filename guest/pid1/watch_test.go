package pid1

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// follow returns a function that waits for the next event of a watch, as "type name".
func (w *world) follow(dir string, recursive bool) (next func() string, events *watchEnd) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	events = &watchEnd{}
	watch, err := w.Watch(ctx, proto.UserDefault, dir, recursive, true)
	must(w.t, err)
	w.t.Cleanup(func() { _ = watch.Close() })
	return func() string {
		w.t.Helper()
		ev, err := watch.Next()
		events.last = ev
		if err != nil {
			return err.Error()
		}
		return string(ev.Type) + " " + ev.Name
	}, events
}

// watchEnd has the latest event.
type watchEnd struct{ last proto.FileEvent }

// until waits for an event and skips others.
func until(t *testing.T, next func() string, want string) {
	t.Helper()
	for range 1000 {
		switch got := next(); got {
		case want:
			return
		case io.EOF.Error():
			t.Fatalf("the watch ended before %q", want)
		}
	}
	t.Fatalf("no event %q", want)
}

// TestWatchTellsChanges checks each kind of event, in a directory and below it: also in directories that were made,
// filled at once, or renamed while the watch was open.
func TestWatchTellsChanges(t *testing.T) {
	w := newWorld(t, false)
	run := func(text string) {
		t.Helper()
		if r := w.run(wire.Command{Text: text, Dir: w.workspace}); r.Code != 0 {
			t.Fatalf("%q: %+v", text, r)
		}
	}
	run("mkdir -p d/sub; touch d/sub/old")
	next, events := w.follow("d", true)
	for _, c := range []struct{ text, want string }{
		{"printf x >d/f", "create f"},
		{"printf y >d/f", "write f"},
		{"chmod 600 d/f", "chmod f"},
		{"mv d/f d/g", "rename f"},
		{"mv d/g d/h", "create h"},
		{"rm d/h", "remove h"},
		{"printf x >d/sub/old", "write sub/old"},
		{"mkdir -p d/new/deep; touch d/new/deep/file", "create new/deep/file"},
		{"printf x >d/new/deep/file", "write new/deep/file"},
		{"mv d/new d/newer", "create newer"},
		{"printf y >d/newer/deep/file", "write newer/deep/file"},
		{"mv d/newer out; touch out/deep/unseen; touch d/seen", "create seen"},
	} {
		run(c.text)
		until(t, next, c.want)
	}
	if e := events.last; e.Path != filepath.Join(w.workspace, "d/seen") || e.Entry == nil || e.Entry.Type != proto.TypeFile {
		t.Errorf("%+v, entry %+v", e, e.Entry)
	}
	run("touch out/deep/later; rm -r d")
	for {
		got := next()
		if got == io.EOF.Error() {
			break
		}
		if got == "create newer/deep/later" || got == "write newer/deep/later" {
			t.Errorf("told %q of a directory that has left", got)
		}
	}
}

// TestWatchOfFastWriters writes into directories that may have no watch of their own yet: each file is told as created
// and as written.
func TestWatchOfFastWriters(t *testing.T) {
	w := newWorld(t, false)
	w.run(wire.Command{Text: "mkdir d", Dir: w.workspace})
	next, _ := w.follow("d", true)
	w.run(wire.Command{Text: "for i in {1..50}; do mkdir d/$i; echo x >d/$i/f; done; touch d/end", Dir: w.workspace})
	seen := map[string]bool{}
	for got := next(); got != "create end"; got = next() {
		seen[got] = true
	}
	for i := range 50 {
		for _, kind := range []string{"create", "write"} {
			if ev := fmt.Sprintf("%s %d/f", kind, i+1); !seen[ev] {
				t.Errorf("no event %q", ev)
			}
		}
	}
}

// TestWatchSaysWhatItLost checks that a client that does not read learns that events are missing.
func TestWatchSaysWhatItLost(t *testing.T) {
	w := newWorld(t, false)
	must(t, os.Mkdir(filepath.Join(w.workspace, "d"), 0o777))
	must(t, os.Chmod(filepath.Join(w.workspace, "d"), 0o777))
	next, _ := w.follow("d", false)
	w.run(wire.Command{Argv: []string{"python3", "-c", `
for i in range(10000):
    open("d/" + "x" * 200 + str(i), "w").close()`}, Dir: w.workspace})
	until := 0
	for got := next(); got != "overflow "; got = next() {
		if until++; until > 100_000 || got == io.EOF.Error() {
			t.Fatalf("no overflow after %d events: %q", until, got)
		}
	}
}

// TestWatchIsRefused checks the errors of watches that cannot be.
func TestWatchIsRefused(t *testing.T) {
	w := newWorld(t, false)
	w.run(wire.Command{Text: "touch file; mkdir closed many; chmod 0 closed", Dir: w.workspace, User: "root"})
	for path, want := range map[string]proto.Code{
		"none": proto.NotFound, "file": proto.InvalidArgument, "closed": proto.PermissionDenied,
	} {
		_, err := w.Watch(short(t), proto.UserDefault, path, true, false)
		wantCode(t, err, want)
	}
	for range 32 {
		watch, err := w.Watch(short(t), proto.UserDefault, "many", false, false)
		must(t, err)
		defer watch.Close()
	}
	_, err := w.Watch(short(t), proto.UserDefault, "many", false, false)
	wantCode(t, err, proto.TooMany)
}

// TestRequestsAfterWatches sends a request right behind the end of a watch, whose connection the guest closes.
func TestRequestsAfterWatches(t *testing.T) {
	w := newWorld(t, false)
	for range 50 {
		dir := filepath.Join(w.workspace, "watched")
		must(t, os.Mkdir(dir, 0o755))
		watch, err := w.Watch(short(t), proto.UserDefault, dir, false, false)
		must(t, err)
		must(t, os.Remove(dir))
		for err == nil {
			_, err = watch.Next()
		}
		if err != io.EOF {
			t.Fatal(err)
		}
		must(t, watch.Close())
		_, err = w.Stat(short(t), proto.UserDefault, "/")
		must(t, err)
	}
}

package pid1

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// manyFiles is more files than a command's end looks at one by one.
const manyFiles = 150

// state walks a job's directory as the daemon does, and returns what later commands see until something changes.
func (w *world) state(job string, most int) string {
	w.t.Helper()
	l, err := w.WalkAll(short(w.t), proto.UserRoot, job, most, "")
	must(w.t, err)
	if l.Truncated {
		return l.Mark
	}
	return proto.Fingerprint(job, l.Files)
}

// fillJob makes a job's directory with many files and an output directory's parent. It returns the job, and runs
// commands in it.
func (w *world) fillJob() (job string, run func(text string) wire.Exit) {
	job = filepath.Join(w.workspace, "job_1")
	n := 0
	run = func(text string) wire.Exit {
		w.t.Helper()
		n++
		id := fmt.Sprintf("exec_%d", n)
		return w.run(wire.Command{ID: id, Text: text, Dir: job, Job: job, Output: filepath.Join(job, ".outputs", id)}).Exit
	}
	run(fmt.Sprintf("mkdir -p a/b ../job_2 && cd a && touch $(seq %d)", manyFiles))
	return job, run
}

// TestMarksSpareTheWalk checks that the end of a command beside many files reports the state of their last walk, until
// anything changed that a walk could find: by name, content, mode or time, through another name, an open descriptor, a
// mapping, or a directory that was moved.
func TestMarksSpareTheWalk(t *testing.T) {
	w := newWorld(t, false)
	job, run := w.fillJob()
	last := w.state(job, 5000)
	for i, c := range []struct {
		text string
		same bool
	}{
		{"true", true},
		{"cat a/1 >/dev/null; ls -lR >/dev/null; touch /tmp/x", true},
		{"printf x >a/1", false},
		{"true", true},
		{"touch -r /etc/passwd a/2", false},
		{"chmod 600 a/3", false},
		{"touch -d 2001-01-01 a/1; printf y >a/1; touch -d 2001-01-01 a/1", false},
		{"mkdir c; touch c/new", false},
		{"touch c/newer", false}, // the new directory has a watch
		{"rm c/newer", false},
		{"mv a d", false},
		{"printf x >d/5", false},
		{"ln d/7 ../job_2/other", false},
		{"true", true},
		{"printf x >../job_2/other", false}, // the same file by its name elsewhere
		{"rm ../job_2/other", false},
		{"ln -s d link", false},
		{"cat link/9", true},
		{"mkfifo p", false},
		{"setfattr -n user.x -v y d/8 || true; true", true},
		{`python3 -c 'import mmap; f = open("d/10", "r+b"); f.truncate(9); mmap.mmap(f.fileno(), 9)[0] = 1'`, false},
		{`mkdir e; mv d/b e/; mv d/1 e/b/; mv e/b .; rmdir e`, false},
		{"printf x >b/1", false},
		{`rm b/1 && ln d/11 b/1`, false},
		{"exit 3", true},
	} {
		x := run(c.text)
		now := w.state(job, 5000)
		if same := x.Seen == last; same != c.same || x.Seen != "" && x.Seen != now {
			t.Errorf("%d %q: seen %q after %q, now %q; want the same: %v", i, c.text, x.Seen, last, now, c.same)
		}
		last = now
	}
}

// TestMarksOfAListThatIsCutOff checks that a directory with more files than a manifest has a state too, and that a
// change of any file ends it.
func TestMarksOfAListThatIsCutOff(t *testing.T) {
	w := newWorld(t, false)
	job, run := w.fillJob()
	last := w.state(job, manyFiles/2)
	for i, c := range []struct {
		text string
		same bool
	}{
		{"true", true},
		{fmt.Sprintf("printf x >a/%d", manyFiles), false},
		{"true", true},
	} {
		x := run(c.text)
		if last == "" || (x.Seen == last) != c.same || !x.NoOutput {
			t.Errorf("%d %q: %+v after %q", i, c.text, x, last)
		}
		last = w.state(job, manyFiles/2)
	}
}

// TestWalkTellsWhatChanged checks that what a walk says has changed since an earlier one leads to the list that a whole
// walk gives, and that names alone are looked at only where each file has one name.
func TestWalkTellsWhatChanged(t *testing.T) {
	w := newWorld(t, false)
	job, run := w.fillJob()
	for _, most := range []int{5000, manyFiles / 2} {
		all := w.list(job, most, "")
		for i, c := range []struct {
			text  string
			delta bool // with the whole list; a list that is cut off needs a walk where names come or go
			names bool // a name comes or goes
		}{
			{"printf x >a/1", true, false},
			{"chmod 600 a/1 a/10", true, false},
			{`printf y >"$OUTPUT_DIR/made"`, true, true},
			{"printf z >a/new", true, true},
			{"rm a/new", true, true},
			{"printf z >a/temp; mv a/temp a/2", true, true},
			{"mv a/3 a/three", true, true},
			{"ln -s nowhere a/link; rm a/4", true, true},
			{"printf x >a/unused; rm a/unused", false, true},
			{"mkdir b; printf x >b/f; rm -r b", false, true},
			{"printf x >a/5", true, false},
			{"ln -f a/6 a/8; printf x >a/8; rm a/8", false, true},
			{"ln a/6 a/six; printf x >a/six; rm a/six", false, true},
			{"ln a/7 ../job_2/seven; printf x >../job_2/seven", false, true},
			{"printf x >a/5", false, true}, // a file has two names, if it is in the list
			{"rm ../job_2/seven", false, true},
			{"printf xx >a/5", true, false},
		} {
			run(c.text)
			l, err := w.WalkAll(short(t), proto.UserRoot, job, most, all.state)
			must(t, err)
			if most == 5000 && l.Delta != c.delta || most < 5000 && !c.names && l.Delta != c.delta {
				t.Errorf("%d: %d %q: a delta: %v", most, i, c.text, l.Delta)
			}
			if l.Delta {
				for _, p := range l.Gone {
					delete(all.files, string(p))
				}
			} else {
				clear(all.files)
			}
			for _, fi := range l.Files {
				all.files[fi.Path] = fi.ChangedAt.UnixMicro()
			}
			if x := run("true"); l.Mark != "" && x.Seen != l.Mark {
				t.Errorf("%d: %d %q: seen %q after %q", most, i, c.text, x.Seen, l.Mark)
			}
			now := w.list(job, most, "")
			if !maps.Equal(now.files, all.files) {
				t.Errorf("%d: %d %q: a delta %v led to %d files %v, there are %d", most, i, c.text, l.Delta,
					len(all.files), l.Files, len(now.files))
			}
			all = now
		}
	}
}

// A listed is what a walk found, with the change times of the files.
type listed struct {
	state string
	files map[string]int64
}

// list walks a job's directory.
func (w *world) list(job string, most int, since string) listed {
	w.t.Helper()
	l, err := w.WalkAll(short(w.t), proto.UserRoot, job, most, since)
	must(w.t, err)
	all := listed{l.Mark, map[string]int64{}}
	if !l.Truncated {
		all.state = proto.Fingerprint(job, l.Files)
	}
	for _, fi := range l.Files {
		all.files[fi.Path] = fi.ChangedAt.UnixMicro()
	}
	return all
}

// TestMarksKnowWhatTheyCannotSee checks that there is no state while a process has a file mapped, because the kernel
// notifies nobody of a write through a mapping, and that there is one while a process merely runs.
func TestMarksKnowWhatTheyCannotSee(t *testing.T) {
	w := newWorld(t, false)
	job, run := w.fillJob()
	run("sleep 1000 & true")
	last := w.state(job, 5000)
	if x := run("true"); x.Seen != last {
		t.Errorf("beside a process: seen %q, want %q", x.Seen, last)
	}
	run(`mkfifo ../go; python3 -c '
import mmap
f = open("a/1", "r+b")
f.truncate(9)
m = mmap.mmap(f.fileno(), 9)
open("../ready", "w").close()
open("../go").read()
m[0] = 1
open("../done", "w").close()
open("../go").read()' & until test -e ../ready; do :; done`)
	w.state(job, 5000)
	if x := run("true"); x.Seen != "" {
		t.Errorf("seen %q beside a mapping", x.Seen)
	}
	run("echo >../go; until test -e ../done; do :; done")
	before := w.state(job, 5000)
	if x := run("true"); x.Seen != "" {
		t.Errorf("seen %q beside a mapping that was written", x.Seen)
	}
	if before == last {
		t.Error("the write through the mapping has no other state")
	}
}

// TestMarksAreOptional checks that commands and walks work in a workspace that cannot be marked, as one with a
// directory that is too deep.
func TestMarksAreOptional(t *testing.T) {
	w := newWorld(t, false)
	job, run := w.fillJob()
	run(fmt.Sprintf("cd ../job_2; for i in $(seq %d); do mkdir d; cd d; done", wire.MaxDepth+1))
	before := w.state(job, 5000)
	if x := run("true"); x.Seen != "" || x.Code != 0 {
		t.Errorf("%+v in a workspace that has no marks", x)
	}
	if mark := w.state(job, 10); mark != "" {
		t.Errorf("mark %q in a workspace that has none", mark)
	}
	run("printf x >a/1")
	if w.state(job, 5000) == before {
		t.Error("a walk without marks missed a change")
	}
}

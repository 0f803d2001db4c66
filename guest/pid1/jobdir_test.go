package pid1

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// walked returns the fingerprint that the daemon would compute from a walk.
func (w *world) walked(dir string) string {
	w.t.Helper()
	l, err := w.WalkAll(context.Background(), proto.UserRoot, dir, 5000, "")
	if err != nil || l.Truncated {
		w.t.Fatalf("walking %s: %v, truncated %v", dir, err, l.Truncated)
	}
	return proto.Fingerprint(dir, l.Files)
}

// TestSightIsAWalk checks that a command's end reports the same fingerprint of the job directory as a walk, and
// another one after a change.
func TestSightIsAWalk(t *testing.T) {
	w := newWorld(t, false)
	job := filepath.Join(w.workspace, "job_1")
	last := ""
	for i, c := range []struct {
		text string
		same bool
	}{
		{"true", false},
		{"true", true},
		{"mkdir -p a/b; ln -s /etc l; printf x >a/b/f", false},
		{"cat a/b/f", true},
		{"printf y >a/b/f", false},
		{"mkdir empty", true}, // lists contain no directories
		{"chmod 600 a/b/f", false},
		{"touch -d 2001-01-01 a/b/f", false},
		{`printf z >"$(printf 'n\377')"`, false},
		{"echo '{}' >manifest.json", false},
		{"rm l", false},
		{"mkfifo p", false},
		{"echo x; exit 3", true},
	} {
		r := w.run(wire.Command{Text: c.text, Dir: job, Job: job})
		if r.Seen == "" || r.Seen != w.walked(job) || (r.Seen == last) != c.same {
			t.Errorf("%d %q: seen %q after %q, walked %q", i, c.text, r.Seen, last, w.walked(job))
		}
		last = r.Seen
	}
	if r := w.run(wire.Command{Text: "true", Dir: job}); r.Seen != "" {
		t.Errorf("seen %q without being asked", r.Seen)
	}
	if r := w.run(wire.Command{Text: "rm -rf ../job_1", Dir: job, Job: job}); r.Seen != "" {
		t.Errorf("seen %q where there is nothing", r.Seen)
	}
	if r := w.run(wire.Command{Text: fmt.Sprintf("touch $(seq %d)", lookedAt+1), Dir: job, Job: job}); r.Seen != "" {
		t.Errorf("seen %q of more than is looked at", r.Seen)
	}
	w.run(wire.Command{Text: "rm *; mkdir x; mv x y; cd ..; rm -rf job_1; ln -s /etc job_1", Dir: job})
	if r := w.run(wire.Command{Text: "true", Job: job}); r.Seen != "" {
		t.Errorf("seen %q through a link", r.Seen)
	}
}

// TestEmptyOutputDirectoryGoes checks that an empty output directory is removed with its command, unless a process
// may still use it.
func TestEmptyOutputDirectoryGoes(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		for i, c := range []struct {
			name string
			cmd  wire.Command
			stay bool
		}{
			{"empty", wire.Command{Text: `test -d "$OUT"`}, false},
			{"of root", wire.Command{Text: `test -d "$OUT"`, User: "root"}, false},
			{"failed", wire.Command{Text: "exit 0; false"}, false},
			{"filled", wire.Command{Text: `touch "$OUT/f"`}, true},
			{"with a directory", wire.Command{Text: `mkdir "$OUT/d"`}, true},
			{"left to somebody", wire.Command{Text: `sleep 60 & true`}, true},
			{"of a shell", wire.Command{Text: `test -d "$OUT"`, Shell: "s"}, false},
			{"where a shell stands", wire.Command{Text: `cd "$OUT"`, Shell: "s"}, true},
			{"below which a shell stands", wire.Command{Text: `mkdir "$OUT/d"; cd "$OUT/d"; rmdir "$OUT/d"`,
				Shell: "s"},
				true},
			{"after it has left", wire.Command{Text: `cd /`, Shell: "s"}, false},
		} {
			out := filepath.Join(w.workspace, "job_1/outputs", fmt.Sprintf("exec_%d", i))
			c.cmd.Output, c.cmd.Env = out, []string{"OUT=" + out}
			if r := w.run(c.cmd); r.Code != 0 {
				t.Errorf("%s: %+v", c.name, r)
			}
			if _, err := os.Lstat(out); (err == nil) != c.stay {
				t.Errorf("%s: %v, want it to stay: %v", c.name, err, c.stay)
			}
		}
		out := filepath.Join(w.workspace, "job_1/outputs/exec_x")
		_, err := w.Start(short(t), wire.Command{Argv: []string{"no-such-program"}, Output: out}, (&collected{}).sink)
		wantCode(t, err, proto.NotFound)
		if _, err := os.Lstat(out); err == nil {
			t.Error("a command that could not be run left its output directory")
		}
	})
}

// TestOutputDirectoryBehindALink checks that root never follows a link to the directory that it removes.
func TestOutputDirectoryBehindALink(t *testing.T) {
	w := newWorld(t, false)
	elsewhere := filepath.Join(w.dir, "elsewhere")
	must(t, os.MkdirAll(filepath.Join(elsewhere, "exec_1"), 0o755))
	out := filepath.Join(w.workspace, "job_1/outputs/exec_1")
	w.run(wire.Command{Text: fmt.Sprintf("mv ../outputs ../moved; ln -s %s ../outputs", elsewhere), Dir: filepath.Dir(
		out),
		Output: out, User: "root"})
	if _, err := os.Lstat(filepath.Join(elsewhere, "exec_1")); err != nil {
		t.Errorf("root removed an empty directory that a link led to: %v", err)
	}
}

// lookedAt is how many files the fingerprint of a job covers.
const lookedAt = 100

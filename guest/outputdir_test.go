package guest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// A job runs commands of one job, whose output directories the guest names.
type job struct {
	*world
	t            *testing.T
	dir, outputs string
}

func newJob(t *testing.T) job {
	w := newWorld(t, false)
	_, err := w.Hello(short(t))
	must(t, err)
	dir := filepath.Join(w.workspace, "job_1")
	return job{w, t, dir, filepath.Join(dir, "outputs")}
}

// run runs a text in an output directory, which must be fresh, and returns where that is.
func (j job) run(text string) (out string, r result) {
	j.t.Helper()
	return j.runCommand(Command{Text: text})
}

func (j job) runCommand(cmd Command) (out string, r result) {
	j.t.Helper()
	cmd.Dir, cmd.Job, cmd.Output, cmd.Named = j.dir, j.dir, filepath.Join(j.outputs, "exec_1"), true
	cmd.Env = append(cmd.Env, "OUTPUT_DIR="+cmd.Output)
	cmd.Text = `stat -c '%n %F %a' "$OUTPUT_DIR" && ls -A "$OUTPUT_DIR" && echo .; ` + cmd.Text
	// of bash some are started ahead, and where that is at the end of a command on a busy machine, its directory does
	// not wait
	if cmd.Shell == "" {
		cmd.Argv, cmd.Text = []string{"sh", "-c", cmd.Text}, ""
	}
	r = j.world.run(cmd)
	out, rest, _ := strings.Cut(r.stdout, " ")
	if filepath.Dir(out) != j.outputs || rest != "directory 755\n.\n" {
		j.t.Errorf("%q: the output directory is %q: %q; %+v", cmd.Text, out, rest, r)
	}
	if r.Output != "" && r.Output != filepath.Base(out) {
		j.t.Errorf("%q: the end names %q, the command was told %q", cmd.Text, r.Output, out)
	}
	return out, r
}

// there lists the output directories.
func (j job) there() (names []string) {
	j.t.Helper()
	entries, err := os.ReadDir(j.outputs)
	must(j.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// ripen waits until what was changed before looks different after any further change.
func ripen(t *testing.T, path string) {
	t.Helper()
	eventually(t, path+" is older than a tick", func() bool {
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		return lookOf(&st).settled()
	})
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// An output directory that a command has not touched is the next one's. One that it has put something into stays, and
// the end says its name.
func TestUntouchedOutputDirectoryServesAgain(t *testing.T) {
	j := newJob(t)
	first, r := j.run("true")
	if !isOutputName(filepath.Base(first)) || r.Output != "" || !isThere(first) {
		t.Fatalf("the guest named it %q; %+v", first, r)
	}
	for i := range 6 {
		if i == 3 {
			ripen(t, first) // from here on it is known by its look alone
		}
		if out, r := j.run("ls -A / >/dev/null; exit 3"); out != first || r.Output != "" || r.Code != 3 ||
			r.Seen == "" {
			t.Errorf("%d: %q after %q: %+v", i, out, first, r)
		}
	}
	if out, r := j.run(`echo >"$OUTPUT_DIR/../beside"; mkdir ../job_1/d; echo >d/f`); out != first ||
		r.Seen != j.walked(j.dir) || !isThere(j.outputs+"/beside") {
		t.Errorf("with a file beside it: %q after %q: %+v", out, first, r)
	}
	first, _ = j.run("true")
	filled, r := j.run(`echo hello >"$OUTPUT_DIR/f"`)
	if filled != first || r.Output != filepath.Base(first) || r.Seen != j.walked(j.dir) {
		t.Errorf("filled %q after %q: %+v", filled, first, r)
	}
	if next, _ := j.run("true"); next == filled || !isThere(filepath.Join(filled, "f")) {
		t.Errorf("the next is %q after %q; there are %q", next, filled, j.there())
	}
}

// What is done to one, by its command or by others while it waits, shows in its look or in what it holds, however
// soon it is done: it is not used again, and what was put there is kept.
func TestTouchedOutputDirectoryDoesNotServeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		left []string // of the directory's name, the names that are there then
	}{
		"mode":           {`chmod 700 .`, nil},
		"filled":         {`echo >f`, []string{"", "f"}},
		"filled, hidden": {`echo >.f`, []string{"", ".f"}},
		"a directory":    {`mkdir d`, []string{"", "d"}},
		"emptied later":  {`echo >f; sleep 0.05; rm f`, nil},
		"moved":          {`mv "$PWD" "$PWD-moved"`, []string{"-moved"}},
		"a link":         {`mv "$PWD" ../../aside; ln -s ../../job_1/aside "$PWD"`, []string{""}},
		"a file":         {`rmdir "$PWD"; echo >"$PWD"`, []string{""}},
		"removed":        {`rmdir "$PWD"`, nil},
	} {
		for _, when := range []string{"young", "settled", "waiting, young", "waiting, settled", "waiting, of root"} {
			t.Run(name+"/"+when, func(t *testing.T) {
				j := newJob(t)
				out, _ := j.run("true")
				if strings.HasSuffix(when, "settled") {
					ripen(t, out)
					ripen(t, j.outputs)
					j.run("true") // which sees that
				}
				touch := `cd "$OUTPUT_DIR"; ` + c.text
				if !strings.HasPrefix(when, "waiting") {
					if again, _ := j.run(touch); again != out {
						t.Fatalf("%q after %q", again, out)
					}
				} else {
					user := ""
					if strings.HasSuffix(when, "root") {
						user = proto.UserRoot
					}
					j.world.run(Command{Text: touch, Dir: j.dir, Env: []string{"OUTPUT_DIR=" + out}, User: user})
				}
				want := []string(nil)
				if c.left != nil {
					want = append(want, filepath.Base(out)+c.left[0])
				}
				next, r := j.run("true")
				if next == out && name != "emptied later" { // whose look may be that of a later reuse
					t.Errorf("used again; %+v", r)
				}
				if r.Seen != j.walked(j.dir) { // which has what waits removed
					t.Errorf("seen %q, walked %q", r.Seen, j.walked(j.dir))
				}
				got := slices.DeleteFunc(j.there(), func(name string) bool {
					return name != filepath.Base(out)+
						"-moved" && name != filepath.Base(out)
				})
				if strings.HasPrefix(when, "waiting") && c.left == nil && name != "removed" {
					want = []string{filepath.Base(out)} // which somebody has laid hands on
				}
				if !slices.Equal(got, want) {
					t.Errorf("left %q, want %q", got, want)
				}
				if len(c.left) > 1 && !isThere(filepath.Join(j.outputs, want[0], c.left[1])) {
					t.Errorf("%s is gone", c.left[1])
				}
			})
		}
	}
}

// Between two ticks of the kernel's clock a directory looks the same before and after a change: with kernels before
// 6.13, as later ones give each change after a look a time of its own.
func TestOutputDirectoryTouchedAtOnce(t *testing.T) {
	j := newJob(t)
	plain := Command{Argv: []string{"true"}, Dir: j.dir, Job: j.dir, Output: j.outputs + "/exec_1", Named: true}
	tried := 0
	for range 50 {
		j.world.run(plain)
		there := j.there()
		if len(there) == 0 {
			continue // what the guest starts ahead was in the middle of that
		}
		tried++
		waits := filepath.Join(j.outputs, there[0])
		must(t, os.Mkdir(filepath.Join(waits, "d"), 0o755))
		if out, _ := j.run("true"); out == waits {
			t.Fatal("used again") // and run has said that it is not empty
		}
		must(t, os.RemoveAll(waits))
	}
	if tried == 0 {
		t.Fatal("none has waited")
	}
	beside := filepath.Join(j.outputs, "beside")
	for range 10 {
		out, _ := j.run(`echo >"$OUTPUT_DIR/../beside"`)
		ripen(t, out)
		// the output directory is known by its look then, and the one above it has changed just now
		plain.Argv = []string{"rm", beside}
		j.world.run(plain)
		must(t, os.WriteFile(beside, nil, 0o600))
		plain.Argv = []string{"true"}
		if r := j.world.run(plain); r.Seen != j.walked(j.dir) {
			t.Fatalf("seen %q, walked %q", r.Seen, j.walked(j.dir))
		}
	}
}

// One that waits goes after a while, and before anybody looks at files. One that a guest left which was killed goes
// when the next guest makes its first.
func TestWaitingOutputDirectoryGoes(t *testing.T) {
	j := newJob(t)
	wait := func() string {
		t.Helper()
		out, _ := j.run("true")
		if !isThere(out) {
			t.Fatal("it does not wait")
		}
		return out
	}
	for range 2 {
		began := time.Now()
		wait()
		eventually(t, "no output directory", func() bool { return len(j.there()) == 0 })
		if took := time.Since(began); took < spareOutput {
			t.Errorf("it waited for %v", took)
		}
	}
	wait()
	if list, _, err := j.List(short(t), proto.UserDefault, j.outputs); err != nil || len(list) > 0 ||
		len(j.there()) > 0 {
		t.Errorf("listed %v, %v; there are %q", list, err, j.there())
	}

	wait()
	for _, dir := range []string{"mine", "0123456789abcdef/d", "0123456789abcde"} {
		must(t, os.MkdirAll(filepath.Join(j.outputs, dir), 0o777))
	}
	litter := wait() // of a guest that has tidied up here already
	j.kill()
	j.boot()
	next := wait()
	if want := []string{filepath.Base(next), "0123456789abcde", "0123456789abcdef", "mine"}; isThere(litter) ||
		!sameNames(j.there(), want) {
		t.Errorf("there are %q, want %q", j.there(), want)
	}
}

func sameNames(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// Where somebody may still use it, it is removed or stays as one that has its own name would.
func TestOutputDirectoryThatDoesNotWait(t *testing.T) {
	for name, c := range map[string]struct {
		cmd   Command
		stay  bool
		named bool // at its end
	}{
		"left to a process":  {Command{Text: `sleep 60 >/dev/null 2>&1 & true`}, true, true},
		"of root":            {Command{User: proto.UserRoot}, false, false},
		"of root, filled":    {Command{User: proto.UserRoot, Text: `echo >"$OUTPUT_DIR/f"`}, true, true},
		"filled by a killed": {Command{Text: `echo >"$OUTPUT_DIR/f"; kill -9 $$`}, true, true},
		"of a shell":         {Command{Shell: "s"}, false, false},
		// which has the name that the daemon gave
		"where a shell is":  {Command{Shell: "s", Text: `cd "$OUTPUT_DIR"`}, true, false},
		"of a kept command": {Command{ID: "exec_1", Keep: 1 << 10}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			out, r := j.runCommand(c.cmd)
			if isThere(out) != c.stay || (r.Output != "") != c.named {
				t.Errorf("is it there: %v; %+v", isThere(out), r)
			}
			if next, _ := j.run("true"); next == out {
				t.Error("used again")
			}
		})
	}
	j := newJob(t)
	var o collected
	long := j.start(Command{Text: "echo on; sleep 60"}, &o)
	o.until(t, proto.Stdout, "on")
	if out, r := j.run("true"); isThere(out) || r.Output != "" {
		t.Errorf("beside another command it waits: %+v", r)
	}
	must(t, long.Kill(short(t)))
	j.wait(long, &o)
	if _, err := j.Start(short(t), Command{Argv: []string{"no-such-program"}, Dir: j.dir, Output: j.outputs + "/exec_1",
		Named: true}, o.sink); proto.CodeOf(err) != proto.NotFound {
		t.Error(err)
	}
	if left := j.there(); len(left) > 0 {
		t.Errorf("a command that could not be run leaves %q", left)
	}
	j.run("true")
	if _, err := j.Start(short(t), Command{Argv: []string{"no-such-program"}, Dir: j.dir, Output: j.outputs + "/exec_1",
		Named: true}, o.sink); proto.CodeOf(err) != proto.NotFound {
		t.Error(err)
	}
	if left := j.there(); len(left) > 0 {
		t.Errorf("after one that waited, a command that could not be run leaves %q", left)
	}
}

// Guests of before, and where descriptors cannot cross, have the name that the daemon gives.
func TestOutputDirectoryOfGuestsThatNameNone(t *testing.T) {
	w := newWorld(t, false)
	_, err := w.Hello(short(t))
	must(t, err)
	for how := unsupported; how < naming; how++ {
		w.pipes = how
		r := w.run(Command{Text: "ls", Output: "job/outputs/exec_1", Dir: "job/outputs", Named: true})
		if r.stdout != "exec_1\n" || r.Output != "" {
			t.Errorf("asked as %d: %+v", how, r)
		}
	}
}

// A guest says which name it gave, and no path that leads elsewhere.
func TestOutputNameOfALiar(t *testing.T) {
	for _, name := range []string{"exec_1", "../../../etc", "0123456789ABCDEF", "0123456789abcde",
		"0123456789abcdef/..", strings.Repeat("a", 1<<10)} {
		d := done{Exit: Exit{Output: name}}
		if d.plausible() {
			t.Errorf("%q is taken for a name", name)
		}
	}
}

// A directory that a running command has stays where another command is the first of its user's in the job: what a
// guest that was killed left goes then.
func TestOutputDirectoryOfARunningCommandStays(t *testing.T) {
	j := newJob(t)
	left := filepath.Join(j.outputs, strings.Repeat("0", 2*outputNameBytes))
	must(t, os.MkdirAll(left, 0o777))
	must(t, os.Chmod(j.dir, 0o777))
	must(t, os.Chmod(j.outputs, 0o777))
	var o collected
	p := j.start(Command{User: "root", Dir: j.dir, Job: j.dir, Output: filepath.Join(j.outputs, "exec_1"), Named: true,
		Stdin: true,
		Argv:  []string{"sh", "-c", `echo up; read l; echo x >"$OUTPUT_DIR/made"`}}, &o)
	o.until(t, proto.Stdout, "up")
	j.run("true")
	if isThere(left) {
		t.Error("what a guest that was killed left is there still")
	}
	must(t, p.CloseStdin())
	if r := j.wait(p, &o); r.Code != 0 || r.Output == "" {
		t.Errorf("its directory is gone: %+v; there are %q", r, j.there())
	}
}

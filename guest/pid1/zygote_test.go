package pid1

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/guest/zygote"
	"berth/proto"
)

// ahead runs commands until the user's next commands are prestarted processes of a zygote.
func (w *world) ahead(user string) {
	w.t.Helper()
	if !zygote.Works {
		w.t.Skip("zygotes are for another architecture")
	}
	eventually(w.t, "a command is prestarted",
		func() bool { return w.run(wire.Command{Text: showObject, User: user}).stdout != "0\n" })
	// the process is prestarted after the answer
	eventually(w.t, "a zygote and its prestarted process wait", func() bool { return len(w.waiting()) >= 2 })
}

// waiting lists bash's zygotes and prestarted processes, in the order of their start.
func (w *world) waiting() (pids []int) { return w.waitingAs("bash") }

// waitingAs is waiting for another program.
func (w *world) waitingAs(program string) (pids []int) {
	for _, name := range w.count(program) {
		args, err := os.ReadFile(filepath.Join("/proc", name, "cmdline"))
		if err == nil && strings.Contains(string(args), zygote.WaitingText) {
			pids = append(pids, pidOf(name))
		}
	}
	slices.Sort(pids)
	return pids
}

// showObject shows whether a command was a prestarted process: such a process has part of the object in its memory.
// Its || : keeps grep from being the last command, which bash would execute in its own place.
const showObject = "grep -c memfd:ahead /proc/$$/maps || :"

// TestZygoteLooksTheSame checks that a command sees the same environment whether bash was executed for it or
// prestarted.
func TestZygoteLooksTheSame(t *testing.T) {
	w := newWorld(t, false)
	out := filepath.Join(w.workspace, "job/out")
	cmd := wire.Command{ID: "exec_1", Dir: "job", Output: out, Env: []string{"A=b c", "EMPTY=", "LANG=C.UTF-8"}, Text: `
		cd /proc/$$ && for f in cmdline environ; do tr '\0' '\n' <$f; echo; done
		(until grep -q '^State:.S' status; do :; done; grep -E '^(Name|Umask|State|PPid|TracerPid|Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap|Sig(Q|Pnd|Blk|Ign|Cgt)|Shd|Cpus_allowed):' status)
		cat oom_score_adj timerslack_ns limits cgroup comm coredump_filter personality 2>/dev/null; readlink cwd root exe fd/*; stat -c '%U %a' . fd mem
		awk '{print $5 == $1, $6 == $1, $7, $8, $18, $19}' stat; ls -l /proc/self/fd | wc -l
		x=ä; OLDPWD= PWD=; echo ${#x} $0 $# $- $SHLVL $LD_PRELOAD ${BASH_EXECUTION_STRING:0:9}; shopt; set -o; trap; ulimit -a | grep -v locks; umask; export -p; jobs`}
	varies := regexp.MustCompile(`(pipe:\[|Max file locks +|SigQ:\s+|/proc/)\d+( +\d+)?`)
	plain := func() string {
		r := w.run(cmd)
		if r.Code != 0 || r.stderr != "" {
			t.Fatalf("%+v", r)
		}
		return varies.ReplaceAllString(r.stdout, "$1")
	}
	if r := w.bash(showObject); r.stdout != "0\n" {
		t.Fatalf("the first command was prestarted: %q", r.stdout)
	}
	want := plain()
	w.ahead("")
	for range 3 {
		got := plain()
		is, was := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range min(len(is), len(was)) {
			if is[i] != was[i] {
				t.Errorf("prestarted it has %q, and executed %q", is[i], was[i])
			}
		}
		if len(is) != len(was) {
			t.Errorf("%d lines, and %d", len(is), len(was))
		}
	}
	if r := w.bash(showObject); r.stdout == "0\n" {
		t.Error("no command was prestarted")
	}
}

// pythonSight prints what a Python sees of its process. The last line shows whether it was prestarted.
const pythonSight = `
import locale, os, resource, signal, sys
for a in sys.argv, sys.orig_argv, sys.executable, sys.prefix, sys.path, sys.flags, os.getcwd(), os.get_exec_path(), sys.getfilesystemencoding(), sys.stdout.encoding, locale.getlocale():
    print(a)
for f in 'cmdline', 'environ':
    print(open('/proc/self/' + f).read().split('\0'))
print(sorted(os.environ.items()))
print(os.getpid() == os.getsid(0) == os.getpgid(0), os.getppid(), os.readlink('/proc/self/exe'), open('/proc/self/comm').read())
print([l for l in open('/proc/self/status') if l.split(':')[0] in ('Name', 'Umask', 'State', 'TracerPid', 'Uid', 'Gid', 'Groups', 'Threads', 'NoNewPrivs', 'Seccomp', 'CapEff', 'SigBlk', 'SigIgn', 'SigCgt')])
print([(n, resource.getrlimit(getattr(resource, n))) for n in sorted(dir(resource)) if n.startswith('RLIMIT')])
print(sorted(map(int, os.listdir('/proc/self/fd'))), len(os.listdir('/proc/self/task')))
import ctypes, subprocess, threading
libc = ctypes.CDLL(None)
print(libc.getpid() == os.getpid(), ctypes.c_char_p.in_dll(libc, 'program_invocation_name').value, threading.get_native_id() == os.getpid())
head, size = ctypes.c_void_p(), ctypes.c_size_t()
print(libc.syscall(274, 0, ctypes.byref(head), ctypes.byref(size)), bool(head), size.value) # get_robust_list
t = threading.Thread(target=print, args=['thread']); t.start(); t.join()
print(subprocess.run(['sh', '-c', 'echo $PPID'], capture_output=True).stdout == b'%d\n' % os.getpid(), os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)[1]))
print('memfd:ahead' in open('/proc/self/maps').read())
`

// TestZygotePython checks that a Python that is run by argv is prestarted too, with any number of arguments, and sees
// the same as one that is executed.
func TestZygotePython(t *testing.T) {
	if !zygote.Works {
		t.Skip("zygotes are for another architecture")
	}
	w := newWorld(t, false)
	must(t, os.WriteFile(filepath.Join(w.workspace, "sight.py"), []byte(pythonSight), 0o644))
	for _, argv := range [][]string{
		{"python3", "sight.py"},
		{"python3", "-c", pythonSight},
		{"python3", "-X", "utf8=1", "-u", "sight.py", "", "a b", "ü", "-c", "9"},
		{"/usr/bin/python3", "-I", "sight.py"}, // to the C library, another name is another program
	} {
		cmd := wire.Command{Argv: argv, Env: []string{"LANG=C.UTF-8", "A=b c", "EMPTY="}}
		look := func() (lines []string, ahead bool) {
			t.Helper()
			r := w.run(cmd)
			if r.Code != 0 || r.stderr != "" {
				t.Fatalf("%.99q: %+v", argv, r)
			}
			lines = strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
			return lines[:len(lines)-1], lines[len(lines)-1] == "True"
		}
		want, ahead := look()
		eventually(t, "it is prestarted", func() bool {
			var is []string
			is, ahead = look()
			if !slices.Equal(is, want) {
				t.Fatalf("prestarted (%t) it finds\n%q\nand executed\n%q", ahead, is, want)
			}
			return ahead
		})
	}
	eventually(t, "a zygote and a prestarted process wait", func() bool { return len(w.waitingAs("python3")) == 2 })
	many := append([]string{"python3", "-c", "import sys; print(len(sys.argv))"},
		strings.Fields(strings.Repeat("many ", 2*zygote.Slots))...)
	if r := w.run(wire.Command{Argv: many}); r.stdout != fmt.Sprintln(1+2*zygote.Slots) {
		t.Errorf("more arguments than there are places for: %+v", r)
	}
	a, b := w.run(wire.Command{Argv: []string{"python3", "-c", "print(hash('a'))"}}),
		w.run(wire.Command{Argv: []string{"python3", "-c", "print(hash('a'))"}})
	if a.stdout == b.stdout {
		t.Errorf("two have the same random seed: %q", a.stdout)
	}
}

// TestZygotePythonScript checks that a python3 that cannot be prestarted is executed, and that bash is still
// prestarted.
func TestZygotePythonScript(t *testing.T) {
	w := newWorld(t, false)
	bin := filepath.Join(w.dir, "bin")
	must(t, os.Mkdir(bin, 0o755))
	must(t, os.WriteFile(filepath.Join(bin, "python3"), []byte("#!/bin/bash\necho wrapped \"$@\"\n"), 0o755))
	for range 2 * zygote.MaxFailures {
		if r := w.run(wire.Command{Argv: []string{"python3", "x"},
			Env: []string{"PATH=" + bin + ":/usr/bin:/bin"}}); r.stdout != "wrapped x\n" || r.stderr != "" {
			t.Fatalf("%+v", r)
		}
	}
	w.ahead("")
	if r := w.bash(showObject); r.stdout == "0\n" {
		t.Error("bash is not started ahead any more")
	}
}

// TestZygoteKeepsCommandsApart checks that each command is a separate process, and that changes to one do not affect
// another.
func TestZygoteKeepsCommandsApart(t *testing.T) {
	w := newWorld(t, false)
	w.ahead("")
	w.bash("cd /; umask 0; export LEFT=over; ulimit -n 50; exec 5>/dev/null; trap '' TERM")
	for i := range 100 {
		r := w.bash(fmt.Sprintf(`echo %d $PWD $LEFT $(umask) $(ulimit -n) $((RANDOM)); kill -TERM $$; sleep 9`, i))
		f := strings.Fields(r.stdout)
		if r.Signal != syscall.SIGTERM || len(f) != 5 || f[0] != strconv.Itoa(i) || f[1] != w.workspace ||
			f[2] != "0022" || f[3] != "1024" {
			t.Fatalf("round %d: %+v", i, r)
		}
	}
	if a, b := w.bash("echo $$ $RANDOM $RANDOM"), w.bash("echo $$ $RANDOM $RANDOM"); a.stdout == b.stdout {
		t.Errorf("two commands have the same: %q", a.stdout)
	}
}

// TestZygoteLeavesOthersAlone checks that a command that cannot be prestarted is executed.
func TestZygoteLeavesOthersAlone(t *testing.T) {
	w := newWorld(t, false)
	w.ahead("")
	many := make([]string, 2*zygote.Slots)
	for i := range many {
		many[i] = fmt.Sprintf("V%d=%d", i, i)
	}
	for name, cmd := range map[string]wire.Command{
		"for the dynamic linker": {Env: []string{"LD_DEBUG_OUTPUT=/dev/null"}},
		"for the C library":      {Env: []string{"GLIBC_TUNABLES=glibc.malloc.check=0"}},
		"many variables":         {Env: many},
		"much text":              {Env: []string{"X=" + strings.Repeat("x", zygote.MaxMessage)}},
		"root":                   {User: proto.UserRoot},
	} {
		cmd.Text = showObject + "; env | wc -c; true"
		r := w.run(cmd)
		if f := strings.Fields(r.stdout); r.Code != 0 || len(f) != 2 || f[0] != "0" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	long := "echo " + strings.Repeat("y", zygote.MaxMessage) + "; " + showObject
	if r := w.bash(long); len(r.stdout) != zygote.MaxMessage+len("\n0\n") || !strings.HasSuffix(r.stdout, "\n0\n") {
		t.Errorf("a long text: %d bytes, %q", len(r.stdout), r.stderr)
	}
	if r := w.bash(showObject); r.stdout == "0\n" {
		t.Error("after all that the zygote is not used any more")
	}
}

// TestZygoteRefuses checks that a working directory that the command may not enter is refused as without a zygote,
// and that the next command runs.
func TestZygoteRefuses(t *testing.T) {
	w := newWorld(t, false)
	must(t, os.Mkdir(filepath.Join(w.dir, "secret"), 0o700))
	w.ahead("")
	_, err := w.Start(short(t), wire.Command{Text: "true", Dir: filepath.Join(w.dir, "secret")},
		func(proto.Stream, int64,
			[]byte) {
		})
	wantCode(t, err, proto.PermissionDenied)
	if r := w.bash("echo on"); r.stdout != "on\n" {
		t.Errorf("%+v", r)
	}
}

// TestZygoteKilled kills or stops a user's waiting processes. The user's next command must still run, exactly once.
func TestZygoteKilled(t *testing.T) {
	for name, sig := range map[string]unix.Signal{"killed": unix.SIGKILL, "stopped": unix.SIGSTOP} {
		for which := range 3 { // the zygote, the prestarted process, both
			t.Run(fmt.Sprint(name, which), func(t *testing.T) {
				w := newWorld(t, false)
				w.ahead("")
				pids := w.waiting()
				if which < 2 {
					pids = pids[which : which+1]
				}
				for _, pid := range pids {
					// a prestarted process ends with its zygote
					if err := unix.Kill(pid, sig); err != nil && err != unix.ESRCH {
						t.Fatal(err)
					}
				}
				for i := range 3 {
					if r := w.bash("echo x >>count; wc -l <count"); r.stdout != fmt.Sprintln(i+1) {
						t.Fatalf("round %d: %+v", i, r)
					}
				}
				w.ahead("") // new ones start
				for _, pid := range w.waiting() {
					if slices.Contains(pids, pid) {
						t.Errorf("%d of %v still waits", pid, pids)
					}
				}
			})
		}
	}
}

// TestZygoteProtected checks that a process of the same user cannot read a waiting process or take its socket. Only a
// command is accessible to its user.
func TestZygoteProtected(t *testing.T) {
	w := newWorld(t, false)
	w.ahead("")
	r := w.bash(`n=0; for p in /proc/[0-9]*; do case $(tr '\0' ' ' <$p/cmdline) in "bash -c # waits"*) n=$((n+1));
		cat $p/environ $p/maps $p/mem && echo read; ls $p/fd $p/map_files && echo listed; readlink $p/exe && echo linked;; esac; done 2>/dev/null; echo $n`)
	// the zygote, and perhaps the next prestarted process
	if n, err := strconv.Atoi(strings.TrimSpace(r.stdout)); err != nil || n < 1 {
		t.Errorf("%+v", r)
	}
}

// TestZygoteBelongsToNoCommand checks that waiting processes belong to no command. They are not counted as left
// behind, and a kill of a command does not end them.
func TestZygoteBelongsToNoCommand(t *testing.T) {
	w := newWorld(t, false)
	w.ahead("")
	before := w.waiting()
	for range 20 {
		if r := w.bash("true"); r.Leftover != 0 {
			t.Fatalf("%+v", r)
		}
	}
	if r := w.bash("sleep 100 & true"); r.Leftover != 1 {
		t.Errorf("%+v", r)
	}
	var o collected
	p := w.start(wire.Command{Text: "(setsid sleep 100 &) ; sleep 100 & echo begun; wait"}, &o)
	o.until(t, proto.Stdout, "begun\n")
	must(t, p.Kill(short(t)))
	if r := w.wait(p, &o); r.Signal != syscall.SIGKILL {
		t.Errorf("%+v", r)
	}
	// it may not have executed sleep yet
	eventually(t, "one process is left, that of the command before", func() bool { return len(w.count("sleep")) == 1 })
	if now := w.waiting(); !slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(before, pid) }) {
		t.Errorf("%v wait, and before %v: the zygote is another", now, before)
	}
}

// TestZygoteCrowd runs many commands at once, each with its own output.
func TestZygoteCrowd(t *testing.T) {
	w := newWorld(t, false)
	w.ahead("")
	errs := make(chan error, 8)
	for n := range cap(errs) {
		go func() {
			errs <- func() error {
				for i := range 50 {
					var o collected
					p, err := w.Start(context.Background(), wire.Command{Text: fmt.Sprintf("echo %d %d; exit %d", n, i,
						i)},
						o.sink)
					if err != nil {
						return err
					}
					x, err := p.Wait(context.Background())
					if want := fmt.Sprintf("%d %d\n", n, i); err != nil || x.Code != i || o.text(proto.Stdout) != want {
						return fmt.Errorf("got %+v, %v, %q, want %q", x, err, o.text(proto.Stdout), want)
					}
				}
				return nil
			}()
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestZygoteKeepsUp checks that commands without a pause get two prestarted processes, one for each of the next two.
func TestZygoteKeepsUp(t *testing.T) {
	w := newWorld(t, false)
	w.ahead("")
	for range 20 {
		w.bash("true")
	}
	eventually(t, "a zygote and two more wait", func() bool { return len(w.waiting()) == 1+zygote.MaxPrestarted })
	var waited []string
	for _, pid := range w.waiting()[1:] {
		waited = append(waited, insideAs(t, pid))
	}
	var o collected
	p := w.start(wire.Command{Text: "echo $$; exec sleep 100"}, &o)
	o.until(t, proto.Stdout, "\n")
	ran := []string{strings.TrimSpace(o.text(proto.Stdout)), w.bash("printf $$").stdout}
	for _, pid := range ran {
		if !slices.Contains(waited, pid) {
			t.Errorf("processes %v ran the commands, and %v waited", ran, waited)
		}
	}
	must(t, p.Kill(short(t)))
	w.wait(p, &o)
}

// TestZygoteIsOfThisBash checks that the guest detects a replaced bash. It compares libraries in the same way.
func TestZygoteIsOfThisBash(t *testing.T) {
	w := newWorld(t, false)
	bin := filepath.Join(w.dir, "bin")
	must(t, os.Mkdir(bin, 0o755))
	own := filepath.Join(bin, "bash")
	copyBash := func() {
		b, err := os.ReadFile("/bin/bash")
		must(t, err)
		must(t, os.WriteFile(own+".new", b, 0o755))
		must(t, os.Rename(own+".new", own))
	}
	copyBash()
	cmd := wire.Command{Text: showObject + "; readlink /proc/$$/exe; true",
		Env: []string{"PATH=" + bin + ":/usr/bin:/bin"}}
	for range 5 {
		w.run(cmd)
	}
	if r := w.run(cmd); r.stdout == "0\n"+own+"\n" {
		t.Fatalf("no command was prestarted: %q", r.stdout)
	}
	copyBash()
	if r := w.run(cmd); r.stdout != "0\n"+own+"\n" {
		t.Errorf("a bash that is gone was used: %q", r.stdout)
	}
}

// TestZygoteRests checks that an unused zygote ends together with its prestarted process.
func TestZygoteRests(t *testing.T) {
	w := newWorld(t, false, zygoteRestVariable+"=500ms")
	w.ahead("")
	eventually(t, "nothing waits", func() bool { return len(w.waiting()) == 0 })
}

// insideAs returns the PID of a process in the container.
func insideAs(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, numbers, _ := strings.Cut(string(b), "\nNSpid:")
	f := strings.Fields(strings.SplitN(numbers, "\n", 2)[0])
	return f[len(f)-1]
}

// pidOf returns the PID that names a directory of /proc.
func pidOf(name string) int {
	pid, _ := strconv.Atoi(name)
	return pid
}

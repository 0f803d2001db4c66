package pid1

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"berth/guest/proc"
	"berth/guest/wire"
	"berth/guest/zygote"
	"berth/proto"
)

// hiding starts a process that has changed its parent, session, process group and environment.
const hiding = `python3 - %s <<'P'
import os, sys
if os.fork(): sys.exit()
os.setsid()
if os.fork(): os._exit(0)
for fd in range(3): os.close(fd)
os.open("/dev/null", os.O_RDWR); os.dup(0); os.dup(0)
os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
P
`

func TestKillTree(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var a, b collected
		w.start(wire.Command{ID: "exec_other", Text: fmt.Sprintf(hiding, "2222") + "echo up; sleep 2223"}, &b)
		b.until(t, proto.Stdout, "up")
		shell := w.run(wire.Command{Shell: "s", Text: fmt.Sprintf(hiding, "3333")})
		if shell.Code != 0 {
			t.Fatalf("%+v", shell)
		}
		left := w.run(wire.Command{ID: "exec_left", Text: fmt.Sprintf(hiding, "4444")})
		if left.Leftover == 0 {
			t.Errorf("a hidden daemon was left, but got %+v", left)
		}
		p := w.start(wire.Command{ID: "exec_victim", Text: fmt.Sprintf(hiding, "1111") +
			"setsid sleep 1112 & (sleep 1113 &) ; env -i sleep 1114 & nohup sleep 1115 >/dev/null & echo up; sleep " +
			"1116; echo no"}, &a)
		a.until(t, proto.Stdout, "up")
		eventually(t, "the hidden one is up", func() bool { return w.alive("sleep 1111") != "" })
		must(t, p.Kill(short(t)))
		if found := w.alive("sleep 111"); found != "" {
			t.Errorf("these survived:\n%s", found)
		}
		if r := w.wait(p, &a); r.Code != 137 || r.Leftover != 0 || r.OutOfMemory || r.stdout != "up\n" {
			t.Errorf("got %+v", r)
		}
		for _, n := range []string{"2222", "2223", "3333", "4444"} {
			if w.alive("sleep "+n) == "" {
				t.Errorf("sleep %s was somebody else's and is gone", n)
			}
		}
	})
}

// TestLeftoverAfterNumbersBeginAnew wraps PIDs while a command runs. The process that it leaves then has a lower PID
// than the command.
func TestLeftoverAfterNumbersBeginAnew(t *testing.T) {
	w := newWorld(t, false)
	if r := w.bash("for i in {1..600}; do (:); done"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	r := w.run(
		wire.Command{User: "root",
			Text: `echo 300 >/proc/sys/kernel/ns_last_pid; sleep 1000 >/dev/null 2>&1 & [ $! -lt $$ ]`})
	if r.Code != 0 || r.stderr != "" || r.Leftover != 1 {
		t.Errorf("%+v", r)
	}
}

// TestKillForkStorm checks that a kill ends a fork bomb.
func TestKillForkStorm(t *testing.T) {
	w := newWorld(t, false)
	var o collected
	p := w.start(
		wire.Command{Text: `ulimit -u 400; f() { (sleep 0.01; f) & (f) & }; echo up; f 2>/dev/null; sleep 1000`},
		&o)
	o.until(t, proto.Stdout, "up")
	eventually(t, "a storm", func() bool { return len(w.count("bash")) > 100 })
	must(t, p.Kill(short(t)))
	if n := len(w.count("bash")); n != 0 {
		t.Errorf("%d of the storm survived", n)
	}
	w.wait(p, &o)
}

// count lists the processes of that name from outside the container, since the container may have no free process for
// a ps.
func (w *world) count(name string) []string {
	var found []string
	entries, _ := os.ReadDir("/proc")
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", w.init.Process.Pid))
	must(w.t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil || !strings.Contains(string(b), "("+name+")") || strings.Contains(string(b), ") Z ") {
			continue
		}
		if its, _ := os.Readlink(filepath.Join("/proc", e.Name(), "ns/pid")); its == ns {
			found = append(found, e.Name())
		}
	}
	return found
}

// TestReaping checks that dead orphans are reaped, and that many of them do not make the guest lose exits of
// commands.
func TestReaping(t *testing.T) {
	w := newWorld(t, false)
	var o collected
	storm := w.start(
		wire.Command{
			Text: `for i in $(seq 400); do (setsid sh -c 'true' & setsid sh -c '(exit 3) & (sleep 0.01) &' &) ; done; echo over`}, &o)
	for i := range 100 {
		if r := w.bash(fmt.Sprintf("(true &); exit %d", i)); r.Code != i {
			t.Fatalf("got %d, want %d", r.Code, i)
		}
	}
	if r := w.wait(storm, &o); r.stdout != "over\n" {
		t.Errorf("%+v", r)
	}
	eventually(t, "no zombies and no orphans", func() bool {
		r := w.run(wire.Command{Argv: []string{"ps", "-eo", "stat=,args="}})
		n := 0
		for line := range strings.Lines(r.stdout) {
			if !strings.Contains(line, zygote.WaitingText) {
				n++
			}
		}
		return n == 2 && !strings.Contains(r.stdout, "Z ")
	})
}

func TestProtected(t *testing.T) {
	w := newWorld(t, false)
	for _, c := range []struct{ user, text string }{
		{"user", "kill -9 1"},
		{"user", "cat /proc/1/environ"},
		{"user", "ls -l /proc/1/fd/"},
	} {
		if r := w.run(wire.Command{User: c.user, Text: c.text}); r.Code == 0 {
			t.Errorf("%s %q worked: %q", c.user, c.text, r.stdout)
		}
	}
	// The guest restores its own score just after a start.
	r := w.bash("read own </proc/self/oom_score_adj; for i in {1..500}; do read guest </proc/1/oom_score_adj; [ " +
		"$guest != $own ] && break; sleep 0.01; done; echo $own $guest")
	if adj := strings.Fields(r.stdout); len(adj) != 2 || number(t, adj[0]) != number(t, adj[1])+proc.ChildScore {
		t.Errorf("the guest should be the last to go when memory is short: %q %q", r.stdout, r.stderr)
	}
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	must(t, err)
	return n
}

package containerd

import (
	"context"
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// A told is a command and the end that must be reported for it.
type told struct {
	name, command string
	timeout       float64
	reason        proto.EndReason
	code          int
	message       string // part of the end's message
	class         proto.RuntimeClass
	user          string
}

const forkUntilRefused = `python3 -c '
import os, signal
made = []
try:
    while True:
        made.append(os.fork())
        if made[-1] == 0:
            signal.pause()
finally:
    for pid in made:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
'`

// signalTraced has the guest trace it, which a user may not do under gVisor, and gets a signal.
const signalTraced = `python3 -c '
import ctypes, os, signal
ctypes.CDLL(None).ptrace(0, 0, 0, 0)
os.kill(os.getpid(), signal.SIGUSR1)
'`

// TestEnds checks that each end is reported with its true reason, in this order in one container.
func TestEnds(t *testing.T) {
	rt := openReal(t)
	st := sessiontest.Over(t, rt, rt.Images(), session.Config{
		Limits: proto.Limits{CPUs: 1, MemoryBytes: 384 << 20, PIDs: 64, DiskBytes: 32 << 20, OpenFiles: 1024},
	})
	cases := []told{
		{name: "a code", command: "exit 3", reason: proto.EndExit, code: 3},
		{name: "a crash", command: "kill -SEGV $$", reason: proto.EndSignal, code: 139},
		{name: "a full workspace", command: "dd if=/dev/zero of=big bs=1M", reason: proto.EndDiskQuota, code: 1,
			message: "/workspace is full"},
		{name: "an unrelated failure on a full disk", command: "grep -q nobody-of-that-name /etc/passwd",
			reason: proto.EndExit, code: 1},
		{name: "a complaint on a full disk", command: "echo no such thing >&2; exit 4", reason: proto.EndExit, code: 4},
		{name: "making room on a full disk", command: "rm big && echo fine > file && cat file", reason: proto.EndExit},
		{name: "a full layer", command: "dd if=/dev/zero of=/tmp/big bs=1M; r=$?; rm -f big; exit $r",
			reason: proto.EndDiskQuota, code: 1, message: "outside /workspace"},
		{name: "room in the layer", command: "rm /tmp/big && echo fine > /home/user/file", reason: proto.EndExit},
		{name: "a full /dev/shm, told by nobody", command: "dd if=/dev/zero of=/dev/shm/big bs=1M 2>/dev/null",
			reason: proto.EndDiskQuota, code: 1, message: "/dev/shm is full"},
		{name: "room in /dev/shm", command: "rm /dev/shm/big", reason: proto.EndExit},
		{name: "words alone", command: "echo No space left on device >&2; exit 5", reason: proto.EndExit, code: 5,
			message: "no disk is full now"},
		{name: "refused processes", command: forkUntilRefused, reason: proto.EndPIDLimit, code: 1,
			message: "limits.pids"},
		{name: "words alone, of processes", command: "echo fork: Resource temporarily unavailable >&2; exit 6",
			reason: proto.EndExit, code: 6, class: proto.ClassRunc},
		{name: "memory", command: "python3 -c 'x = bytearray(1 << 30)'", reason: proto.EndOutOfMemory, code: 137,
			message: "memory limit"},
		{name: "a crash like it", command: "kill -KILL $$", reason: proto.EndSignal, code: 137},
		{name: "a signal for a traced process", command: signalTraced, reason: proto.EndSignal, code: 138},
		{name: "a signal for a traced process of root", command: signalTraced, reason: proto.EndSignal, code: 138,
			user: "root"},
		{name: "its files are there", command: "cat file", reason: proto.EndExit},
		{name: "time", command: "sleep 100", timeout: 0.5, reason: proto.EndTimeout, code: 137},
	}
	classes(t, func(t *testing.T, class proto.RuntimeClass) {
		s, err := st.Sessions.Create(context.Background(), sessiontest.Owner, proto.CreateContainer{
			RuntimeClass: class})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			if c.class == "" || c.class == class {
				checkEnd(t, s, c)
			}
		}
		killedTree(t, s, class)
	})
}

// forkToLimit is refused a process, says how many it had, and ends well.
const forkToLimit = `python3 -c '
import os, signal
made = []
try:
    while True:
        made.append(os.fork())
        if made[-1] == 0:
            signal.pause()
except BlockingIOError:
    print(len(made) > 40)
for pid in made:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
'`

// TestForksAreRefused checks that a program which forks as often as it may is refused the next process, and that
// nothing else happens to the container. It is the first program of each container, when the guest has the fewest
// threads.
func TestForksAreRefused(t *testing.T) {
	rt := openReal(t)
	st := sessiontest.Over(t, rt, rt.Images(), session.Config{
		Limits: proto.Limits{CPUs: 1, MemoryBytes: 384 << 20, PIDs: 64, DiskBytes: 32 << 20, OpenFiles: 1024},
	})
	classes(t, func(t *testing.T, class proto.RuntimeClass) {
		for _, user := range []string{proto.UserRoot, proto.UserDefault, proto.UserRoot} {
			s, err := st.Sessions.Create(t.Context(), sessiontest.Owner, proto.CreateContainer{RuntimeClass: class})
			if err != nil {
				t.Fatal(err)
			}
			res, err := s.Run(t.Context(), proto.Cmd{Command: forkToLimit, User: user, TimeoutSeconds: 60})
			if err != nil {
				t.Fatal(err)
			}
			if end := res.Exec.End; end.Reason != proto.EndExit || end.ReturnCode != 0 ||
				res.Result.Result.Stdout != "True\n" {
				t.Errorf("%s: %+v, it wrote %+v", user, *end, res.Result.Result)
			}
			if got := s.Info(); got.Generation != 1 || got.State != proto.StateRunning {
				t.Errorf("%s: the container is %s in generation %d", user, got.State, got.Generation)
			}
		}
	})
}

func checkEnd(t *testing.T, s *session.Session, c told) {
	t.Helper()
	res, err := s.Run(t.Context(), proto.Cmd{Command: c.command, TimeoutSeconds: c.timeout,
		User: c.user})
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
		return
	}
	end := res.Exec.End
	if end.Reason != c.reason || end.ReturnCode != c.code || !strings.Contains(end.Message, c.message) {
		t.Errorf("%s: %+v, want %s %d %q; it wrote %+v", c.name, *end, c.reason, c.code, c.message, res.Result.Result)
	}
}

// killedTree checks that the usage of a killed process tree is reported, including processes without a waiting
// parent.
func killedTree(t *testing.T, s *session.Session, class proto.RuntimeClass) {
	const spin = `(setsid python3 -c '
import resource
x = bytearray(64 << 20)
while True: pass' &)
exec sleep 100`
	res, err := s.Run(t.Context(), proto.Cmd{Command: spin, TimeoutSeconds: 3})
	if err != nil {
		t.Fatal(err)
	}
	end := res.Exec.End
	if end.CPUSeconds < 0.2 || class == proto.ClassRunc && end.PeakBytes < 64<<20 {
		t.Errorf("a killed tree that worked is told to have used %+v", *end)
	}
}

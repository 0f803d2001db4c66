package pid1

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/guest/wire"
)

// tracing is the beginning of a Python program. trace makes the parent of the process its tracer.
const tracing = `
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def trace():
    if libc.ptrace(0, 0, 0, 0): raise OSError(ctypes.get_errno(), 'ptrace')
def busy(): # 0.1 s of CPU time
    while time.process_time() < 0.1: pass
CLONE = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
def caught(*_): os.write(1, b'caught ')
def later(pid, sig): # from another process
    if os.fork() == 0:
        time.sleep(0.1)
        os.kill(pid, sig)
        os._exit(0)
`

// TestTracedCommands checks that a command that makes the guest its tracer ends as it does without that, is counted,
// and is gone then.
func TestTracedCommands(t *testing.T) {
	w := newWorld(t, false)
	for _, c := range []struct {
		name, program, stdout string
		signal                syscall.Signal
		code                  int
	}{
		{"a signal that ends it", "trace(); busy(); os.kill(os.getpid(), signal.SIGUSR1)", "", syscall.SIGUSR1, 138},
		{"a trap", "trace(); busy(); signal.raise_signal(signal.SIGTRAP)", "", syscall.SIGTRAP, 133},
		{"a fault", "trace(); busy(); ctypes.string_at(8)", "", syscall.SIGSEGV, 139},
		{"a signal that it catches", "signal.signal(signal.SIGUSR1, caught); trace(); busy(); " +
			"os.kill(os.getpid(), signal.SIGUSR1); print('on', flush=True); os._exit(7)", "caught on\n", 0, 7},
		{"a signal that it ignores", "trace(); busy(); os.kill(os.getpid(), signal.SIGWINCH); os._exit(7)", "", 0, 7},
		{"no signal", "trace(); busy(); os._exit(7)", "", 0, 7},
		{"traces itself twice", "trace(); busy(); os.kill(os.getpid(), signal.SIGWINCH); trace(); " +
			"os.kill(os.getpid(), signal.SIGKILL)", "", syscall.SIGKILL, 137},
		{"a program in its place", "trace(); busy(); os.execvp('sh', ['sh', '-c', 'echo on; exit 7'])", "on\n", 0, 7},
		{"stopped and continued", "trace(); busy(); later(os.getpid(), signal.SIGCONT); " +
			"os.kill(os.getpid(), signal.SIGSTOP); print('on', flush=True); os.wait(); os._exit(7)", "on\n", 0, 7},
		{"a thread", "threading.Thread(target=lambda: (trace(), signal.raise_signal(signal.SIGWINCH))).start(); " +
			"busy(); os._exit(7)", "", 0, 7},
		{"a thread that has ended", "x = threading.Thread(target=trace); x.start(); x.join(); busy(); os._exit(7)",
			"", 0, 7},
		{"a child that it makes the guest trace", "trace(); busy(); " +
			// CLONE_PTRACE
			"pid = libc.syscall(CLONE, 0x2000 | signal.SIGCHLD, 0, 0, 0, 0); pid or os._exit(3); " +
			"os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + 4)", "", 0, 7},
		{"a child of the guest", "busy(); libc.syscall(CLONE, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) or " + // CLONE_PARENT
			"(trace(), os.kill(os.getpid(), signal.SIGUSR1), print('never', flush=True)); time.sleep(0.2); os._exit(7)",
			"", 0, 7},
		{"an orphan", `busy()
r, w = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        while os.getppid() != 1: time.sleep(0.001)
        signal.signal(signal.SIGUSR1, caught)
        trace()
        os.kill(os.getpid(), signal.SIGUSR1)
        os.write(w, str(os.getpid()).encode())
        os._exit(0)
    os._exit(0)
os.wait()
pid = os.read(r, 9).decode()
while os.path.exists('/proc/' + pid): time.sleep(0.001)
os._exit(7)`, "caught ", 0, 7},
		{"its own tracer", `busy()
pid = os.fork()
if pid == 0:
    trace()
    os.kill(os.getpid(), signal.SIGUSR1)
    os._exit(5)
assert os.WSTOPSIG(os.waitpid(pid, 0)[1]) == signal.SIGUSR1
assert libc.ptrace(7, pid, 0, 0) == 0 # PTRACE_CONT
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + 2)`, "", 0, 7},
		{"a child seizes it", `busy()
libc.prctl(0x59616d61, -1, 0, 0, 0)
pid, (r, w) = os.getpid(), os.pipe()
if os.fork() == 0:
    assert libc.ptrace(0x4206, pid, 0, 0x40) == 0 # PTRACE_SEIZE, PTRACE_O_TRACEEXIT
    os.write(w, b'x')
    os.waitpid(pid, 0x40000000)
    os.write(1, b'seen ')
    os._exit(libc.ptrace(7, pid, 0, 0))
os.read(r, 1)
os._exit(7)`, "seen ", 0, 7},
	} {
		for _, user := range []string{"user", "root"} {
			r := w.run(wire.Command{User: user, Argv: []string{"python3", "-c", tracing + c.program}})
			if r.stdout != c.stdout || r.Signal != c.signal || r.Code != c.code || r.Leftover != 0 {
				t.Errorf("%s, %s: %+v", c.name, user, r)
			}
			if r.CPU < 100*time.Millisecond || r.CPU > 2*time.Second {
				t.Errorf("%s, %s: it has used %v of CPU time", c.name, user, r.CPU)
			}
		}
		eventually(t, c.name+": no process is left", func() bool {
			list := w.run(wire.Command{User: "root", Argv: []string{"ps", "-eo", "args="}})
			return !strings.Contains(list.stdout, "libc.ptrace")
		})
	}
}

// TestTracedCommandIsKilled checks that a command that makes the guest its tracer can be killed, stopped or not, and
// that the end of such a shell is told.
func TestTracedCommandIsKilled(t *testing.T) {
	w := newWorld(t, false)
	for _, then := range []string{"", "; os.kill(os.getpid(), signal.SIGSTOP)"} {
		var o collected
		p := w.start(wire.Command{Argv: []string{"python3", "-c",
			tracing + "trace(); print('ready', flush=True)" + then + "; time.sleep(1000)"}}, &o)
		o.until(t, 1, "ready")
		must(t, p.Kill(t.Context()))
		if r := w.wait(p, &o); r.Signal != syscall.SIGKILL {
			t.Errorf("%q: %+v", then, r)
		}
	}
	r := w.run(wire.Command{Shell: "s", Env: []string{"T=" + tracing},
		Text: `exec python3 -c "$T"$'\ntrace(); os.kill(os.getpid(), signal.SIGUSR1)'`})
	if r.Signal != syscall.SIGUSR1 {
		t.Errorf("a shell: %+v", r)
	}
}

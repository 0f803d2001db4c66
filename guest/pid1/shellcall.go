package pid1

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/proc"
	"berth/guest/wire"
	"berth/proto"
)

// A shellCall is a running call.
type shellCall struct {
	n     int
	base  string            // path prefix of its files
	sends map[string]string // variables of the caller that the call sets in the shell
	cpu   uint64            // ticks that the shell used before the call
}

// call runs one text. An error means that the text was not started. The shell runs one call at a time, and
// its turn ends with call.
func (e *execution) call(sh *shell, cmd *wire.Command, fresh bool) error {
	defer func() { <-sh.turn }()
	c, err := sh.prepare(cmd)
	if err != nil {
		return err
	}
	if err := e.listenTo(c); err != nil {
		e.unplumb()
		c.remove()
		return sh.fileError(err)
	}
	// Processes that run now do not belong to this call. They are subtracted from what the call leaves behind.
	e.before = e.s.procs.Counters(sh.o)
	// The CPU time of the shell until now belongs to earlier calls.
	c.cpu = proc.TicksOf(sh.o.PID)
	if err := e.adopt(sh.o, cmd); err != nil {
		e.unplumb()
		c.remove()
		return err
	}
	// If bash has ended already, the wait below detects that.
	_, _ = sh.ctl.WriteString(c.base + "\n")
	maps.Copy(sh.sent, c.sends) // only now: a call that was not started has set no variables
	e.announce(wire.Started{PID: sh.o.PID, Fresh: fresh})
	e.pump(false, false)
	opened := e.openInput(c)
	code, alive := sh.await(c.n)
	e.awaitActs()
	if alive {
		// The answer and the shell's end may come at the same moment. Then the end counts: the next call needs a new
		// shell.
		select {
		case <-sh.gone: // killed, or ended right after the call
			alive = false
		default:
		}
	}
	x := sh.exit(c, code, alive)
	e.s.procs.Explain(&x, sh.o, e.before, e.wasKilled)
	// Bash may have ended without opening its stdin. The goroutine of openInput would then wait forever.
	if cmd.HasInput() {
		c.unblock(opened)
	}
	x.Leftover = e.s.procs.Leftover(sh.o)
	e.checkJobDir(&x)
	c.remove()
	e.report(x)
	return nil
}

// adopt makes o the group that a kill of the execution ends. It fails if the caller has disconnected. If the caller
// disconnects later, the kill finds o. A call that is to be kept is kept from here on.
func (e *execution) adopt(o *proc.Group, cmd *wire.Command) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.cancel:
		return proto.Errorf(proto.Canceled, "exec", cmd.Shell, "the caller went away")
	default:
	}
	if cmd.Keep > 0 {
		if e.kept, err = e.s.keeps.add(e.s, cmd); err != nil {
			return err
		}
	}
	e.group = o
	return nil
}

// prepare writes the files of a call. Only root can replace them. The number of the call makes the names unique, so
// that a call never uses files of an earlier one.
func (sh *shell) prepare(cmd *wire.Command) (*shellCall, error) {
	sh.mu.Lock()
	sh.calls++
	c := &shellCall{n: sh.calls}
	sh.mu.Unlock()
	c.base = filepath.Join(sh.dir, strconv.Itoa(c.n))
	exports := ""
	exports, c.sends = sh.exports(cmd)
	err := errors.Join(
		sh.write(c.base+".text", cmd.Text),
		sh.write(c.base+".env", exports),
		sh.fifo(c.base+".out"), sh.fifo(c.base+".err"),
	)
	if cmd.HasInput() {
		err = errors.Join(err, sh.fifo(c.base+".in"))
		// Without input, stdin is /dev/null, as for a background command. Reading a FIFO without a writer would hang.
	} else {
		err = errors.Join(err, os.Symlink(os.DevNull, c.base+".in"))
	}
	if err != nil {
		c.remove()
		return nil, sh.fileError(err)
	}
	return c, nil
}

// exports returns the new variables of the caller's environment, as bash commands and as entries for sent. It leaves
// out variables that an earlier call has set: the shell may have changed them since.
func (sh *shell) exports(cmd *wire.Command) (string, map[string]string) {
	var b strings.Builder
	sends := map[string]string{}
	env := cmd.Env
	if cmd.ID != "" {
		// The capacity is cut to the length, so that append copies and does not change the caller's slice.
		env = append(env[:len(env):len(env)], proc.ExecIDVariable+"="+cmd.ID)
	}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		if old, ok := sh.sent[k]; ok && old == v || !isName(k) {
			continue
		}
		sends[k] = v
		// In single quotes, bash treats only the single quote specially. "builtin" skips a function that an earlier
		// call may have named export.
		fmt.Fprintf(&b, "builtin export %s=%s\n", k, quoted(v))
	}
	for _, kv := range cmd.Lists {
		k, v, _ := strings.Cut(kv, "=")
		if sh.sent[kv] == "" { // the shell may have started before the list existed
			sends[kv] = v
			fmt.Fprintf(&b, "[[ :$%[1]s: == *:%[2]s:* ]] || builtin export %[1]s=\"${%[1]s:+$%[1]s:}\"%[2]s\n", k,
				quoted(v))
		}
	}
	return b.String(), sends
}

// quoted quotes a word for bash.
func quoted(v string) string { return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'" }

// isName reports whether s is a valid name of a bash variable. It compares with the ASCII letters, since the letters
// of other checks depend on the locale.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// fileError describes an error with the files of a call, and names their directory: freeing space on the container's
// disk does not help there.
func (sh *shell) fileError(err error) error {
	return wire.FileError("shell", "the shell's files in "+filepath.Dir(filepath.Dir(sh.dir)), err)
}

// write creates a file that only the shell's user may read, since it may contain secrets.
func (sh *shell) write(name, text string) error {
	if err := os.WriteFile(name, []byte(text), 0o400); err != nil {
		return err
	}
	return os.Chown(name, sh.id.UID, sh.id.GID)
}

// fifo creates a FIFO that only the shell's user may open. Other users could read and forge output there.
func (sh *shell) fifo(name string) error {
	if err := unix.Mkfifo(name, 0o600); err != nil {
		return err
	}
	return os.Chown(name, sh.id.UID, sh.id.GID)
}

// remove removes the files of a call.
func (c *shellCall) remove() {
	for _, end := range []string{".text", ".env", ".in", ".out", ".err"} {
		_ = os.Remove(c.base + end)
	}
}

// listenTo opens the guest's ends of a call's output.
func (e *execution) listenTo(c *shellCall) error {
	for _, end := range []string{".out", ".err"} {
		// Without O_NONBLOCK, opening a FIFO for reading waits for a writer.
		fd, err := unix.Open(c.base+end, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "output")
		e.outs = append(e.outs, f)
		// Without a writer in the guest, the FIFO would be at end of file before bash has opened it.
		w, err := unix.Open(c.base+end, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		e.keep = append(e.keep, w)
	}
	return nil
}

// openInput opens the guest's end of a call's stdin. The open waits until bash has opened the other end.
func (e *execution) openInput(c *shellCall) <-chan struct{} {
	opened := make(chan struct{})
	if e.feed == nil {
		close(opened)
		return opened
	}
	go func() {
		defer close(opened)
		fd, err := unix.Open(c.base+".in", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		if f, err := wire.Pollable(fd, "stdin"); err == nil {
			e.feed.Open(f, f.Close)
		}
	}()
	return opened
}

// unblock ends openInput if bash never opened its end. It opens that end, so that the waiting open returns.
func (c *shellCall) unblock(opened <-chan struct{}) {
	fd, err := unix.Open(c.base+".in", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	<-opened
	if err == nil {
		_ = unix.Close(fd)
	}
}

// await waits until call n or the shell has ended. It returns the exit code, and whether the shell is alive.
func (sh *shell) await(n int) (code int, alive bool) {
	for {
		select {
		case a := <-sh.answers:
			// Skip the answer of an earlier call, which was killed while it wrote.
			if a.call == n {
				return a.code, true
			}
		case <-sh.gone:
			// The shell has ended. Its last answer may still be in the channel and takes precedence over the shell's
			// exit status.
			for {
				select {
				case a := <-sh.answers:
					if a.call == n {
						return a.code, false
					}
					continue
				default:
				}
				return -1, false
			}
		}
	}
}

// exit describes how a call ended. With a code of -1 it returns the exit status of the shell. The kernel counts CPU
// time in ticks of 10 ms.
func (sh *shell) exit(c *shellCall, code int, alive bool) wire.Exit {
	if alive {
		x := wire.Exit{Code: code}
		if now := proc.TicksOf(sh.o.PID); now > c.cpu {
			x.CPU = time.Duration(now-c.cpu) * (time.Second / 100)
		}
		return x
	}
	x := sh.death.Exit()
	x.CPU = max(0, x.CPU-time.Duration(c.cpu)*(time.Second/100))
	x.ShellEnded = true
	if code >= 0 {
		x.Code, x.Signal = code, 0
	}
	return x
}

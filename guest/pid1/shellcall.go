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

	"berth/guest/wire"
	"berth/proto"
)

// A shellCall is one call while it runs.
type shellCall struct {
	n     int
	base  string            // of its files
	sends map[string]string // what it tells the shell of the caller's environment
	cpu   uint64            // ticks used by the shell before it
}

// call runs one text. An error means that it was not started.
// One call has the shell at a time; the turn is given back on every way out, or the shell would never take
// another.
func (e *execution) call(sh *shell, cmd *wire.Command, fresh bool) error {
	c, err := sh.prepare(cmd)
	if err != nil {
		<-sh.turn
		return err
	}
	if err := e.listenTo(c); err != nil {
		e.unplumb()
		c.remove()
		<-sh.turn
		return sh.fileError(err)
	}
	// What runs now is not this call's doing, and is taken off what it leaves behind.
	e.before = e.s.readCounters()
	e.before.orphans = e.s.reaper.account(sh.o)
	// A shell lives through many calls; its CPU time so far is theirs.
	if table, ok := readProc(sh.o.pid); ok {
		c.cpu = table.cpu
	}
	if err := e.adopt(sh.o, cmd); err != nil {
		e.unplumb()
		c.remove()
		<-sh.turn
		return err
	}
	// If bash is gone already, the wait below sees it.
	_, _ = sh.ctl.WriteString(c.base + "\n")
	maps.Copy(sh.sent, c.sends) // not before: a call that was not started has told the shell nothing
	e.announce(wire.Started{PID: sh.o.pid, Fresh: fresh})
	e.pump(false, false)
	opened := e.openInput(c)
	code, alive := sh.await(c.n)
	e.awaitActs()
	if alive {
		// The answer and the shell's end may come at the same moment, and then the end counts: the next
		// call needs a new shell.
		select {
		case <-sh.gone: // by the kill, or right after the call
			alive = false
		default:
		}
	}
	x := sh.exit(c, code, alive)
	e.explain(&x)
	// Bash may have ended without opening its stdin, and then the goroutine that waits for it would wait
	// for ever.
	if cmd.HasInput() {
		c.unblock(opened)
	}
	x.Leftover, _ = e.s.leftover(sh.o)
	e.checkJobDir(&x)
	c.remove()
	e.report(x)
	<-sh.turn
	return nil
}

// adopt makes o what a kill is for, unless the caller is gone; if it goes after this, its
// kill finds o. A call that is to be kept is from here on.
func (e *execution) adopt(o *group, cmd *wire.Command) (err error) {
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

// prepare writes the files of a call. Nobody but root can put anything in their place. The number makes the names of
// each call's files new, so that nothing which an earlier call left is taken for this one's.
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
		// Without input, stdin is /dev/null, as for a command in the background: a FIFO without a writer would
		// hang what reads it.
	} else {
		err = errors.Join(err, os.Symlink(os.DevNull, c.base+".in"))
	}
	if err != nil {
		c.remove()
		return nil, sh.fileError(err)
	}
	return c, nil
}

// exports is what is new in the caller's environment, as bash commands and as it goes into sent. What an earlier call
// was given already is left alone: the shell may have changed it since.
func (sh *shell) exports(cmd *wire.Command) (string, map[string]string) {
	var b strings.Builder
	sends := map[string]string{}
	env := cmd.Env
	if cmd.ID != "" {
		// The capacity is cut to the length, so that append copies and the caller's slice stays as it was.
		env = append(env[:len(env):len(env)], execIDVariable+"="+cmd.ID)
	}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		if old, ok := sh.sent[k]; ok && old == v || !isName(k) {
			continue
		}
		sends[k] = v
		// Single quotes keep everything but themselves from bash. "builtin" passes by a function that an
		// earlier call may have named export.
		fmt.Fprintf(&b, "builtin export %s=%s\n", k, quoted(v))
	}
	for _, kv := range cmd.Lists {
		k, v, _ := strings.Cut(kv, "=")
		if sh.sent[kv] == "" { // the shell may have begun before there was such a list
			sends[kv] = v
			fmt.Fprintf(&b, "[[ :$%[1]s: == *:%[2]s:* ]] || builtin export %[1]s=\"${%[1]s:+$%[1]s:}\"%[2]s\n", k,
				quoted(v))
		}
	}
	return b.String(), sends
}

// quoted is a word as bash reads it back.
func quoted(v string) string { return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'" }

// isName reports whether bash can have a variable of that name.
// The alphabet is written out, as what a letter is depends on the locale elsewhere.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// fileError tells what went wrong with the files of a call, and where those are: what makes room for them is not the
// container's disk.
func (sh *shell) fileError(err error) error {
	return wire.FileError("shell", "the shell's files in "+filepath.Dir(filepath.Dir(sh.dir)), err)
}

// write makes a file that the shell's user may read, and nobody else: secrets are in there.
func (sh *shell) write(name, text string) error {
	if err := os.WriteFile(name, []byte(text), 0o400); err != nil {
		return err
	}
	return os.Chown(name, sh.id.UID, sh.id.GID)
}

// fifo makes a FIFO that the shell's user may open, and nobody else: another's output could be read and forged there.
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

// listenTo opens our ends of a call's output.
func (e *execution) listenTo(c *shellCall) error {
	for _, end := range []string{".out", ".err"} {
		// Not blocking, since an open of a FIFO for reading waits for a writer otherwise.
		fd, err := unix.Open(c.base+end, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "output")
		e.outs = append(e.outs, f)
		// Without a writer of our own it would be at its end before bash has opened it.
		w, err := unix.Open(c.base+end, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		e.keep = append(e.keep, w)
	}
	return nil
}

// openInput opens our end of a call's stdin, which waits until bash has opened its own.
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
			e.feed.open(f, f.Close)
		}
	}()
	return opened
}

// unblock ends openInput where bash never opened its end.
// Opening the other end is what lets the waiting open return.
func (c *shellCall) unblock(opened <-chan struct{}) {
	fd, err := unix.Open(c.base+".in", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	<-opened
	if err == nil {
		_ = unix.Close(fd)
	}
}

// await waits until call n has ended: with a code and the shell alive, or with the shell.
func (sh *shell) await(n int) (code int, alive bool) {
	for {
		select {
		case a := <-sh.answers:
			// An answer of an earlier call, which was killed while it wrote, is passed over.
			if a.call == n {
				return a.code, true
			}
		case <-sh.gone:
			// The shell has ended; its last answer may still be in the channel, and is the better word.
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

// exit describes how a call ended. A code of -1 means that the shell's own end tells it.
// The kernel counts in ticks of a hundredth of a second.
func (sh *shell) exit(c *shellCall, code int, alive bool) wire.Exit {
	if alive {
		x := wire.Exit{Code: code}
		if now, ok := readProc(sh.o.pid); ok && now.cpu > c.cpu {
			x.CPU = time.Duration(now.cpu-c.cpu) * (time.Second / 100)
		}
		return x
	}
	x := exitOf(sh.death)
	x.CPU = max(0, x.CPU-time.Duration(c.cpu)*(time.Second/100))
	x.ShellEnded = true
	if code >= 0 {
		x.Code, x.Signal = code, 0
	}
	return x
}

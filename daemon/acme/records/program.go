package records

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A program is the operator's, for name servers that no other provider can change. It is run as
// "PROGRAM present NAME VALUE" and "PROGRAM cleanup NAME VALUE". Its environment has PATH and the settings env.*, so a
// secret is in no argument and not in the daemon's own environment.
type program struct {
	path string
	env  []string
}

func newProgram(settings map[string]string) (Provider, error) {
	if err := required(settings, "program"); err != nil {
		return nil, err
	}
	p := &program{path: settings["program"], env: []string{"PATH=" + os.Getenv("PATH")}}
	if !filepath.IsAbs(p.path) {
		return nil, fmt.Errorf("program: %q is no absolute path", p.path)
	}
	for name, value := range settings {
		if variable, ok := strings.CutPrefix(name, envPrefix); ok {
			p.env = append(p.env, variable+"="+value)
		}
	}
	slices.Sort(p.env)
	return p, p.check()
}

// check refuses a program that other users than root and the daemon's could replace.
func (p *program) check() error {
	fi, err := os.Stat(p.path)
	switch {
	case err != nil:
		return fmt.Errorf("program: %w", err)
	case !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0:
		return fmt.Errorf("program: %s cannot be executed", p.path)
	}
	return checkPath(p.path)
}

// maxLinks bounds the symbolic links on a path, as the kernel does.
const maxLinks = 40

// checkPath refuses a file that another user could change or replace: itself, in a directory above it, or by a link
// that leads to it.
func checkPath(path string) error {
	for range maxLinks {
		target, err := nextPath(path)
		if err != nil || target == "" {
			return err
		}
		path = target
	}
	return fmt.Errorf("program: %s has more than %d symbolic links", path, maxLinks)
}

// nextPath checks a path from the root to its first link, and returns the path with the link's target in its place; ""
// means that it has no link.
func nextPath(path string) (target string, err error) {
	names := strings.Split(strings.TrimPrefix(path, "/"), "/")
	at := "/"
	for i := 0; ; i++ {
		fi, err := os.Lstat(at)
		if err != nil {
			return "", fmt.Errorf("program: %w", err)
		}
		if err := checkOwned(at, fi); err != nil {
			return "", err
		}
		if fi.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(at)
			if err != nil {
				return "", fmt.Errorf("program: %w", err)
			}
			if !filepath.IsAbs(to) {
				to = filepath.Dir(at) + "/" + to
			}
			return strings.Join(append([]string{to}, names[i:]...), "/"), nil
		}
		if i == len(names) {
			return "", nil
		}
		at = filepath.Join(at, names[i]) // ".." is right, since no part of at is a link
	}
}

// checkOwned refuses what belongs to another user, or what others may write to. In a directory with the sticky bit,
// such as /tmp, others cannot replace what is not theirs.
func checkOwned(path string, fi fs.FileInfo) error {
	mode := fi.Mode()
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("program: %s belongs to user %d, who could replace what runs as the daemon's user; run "+
			"chown root on it", path, st.Uid)
	}
	safe := mode&fs.ModeSymlink != 0 || mode.IsDir() && mode&fs.ModeSticky != 0
	if mode&0o022 != 0 && !safe {
		return fmt.Errorf("program: others may change %s (mode %04o), and what it leads to runs as the daemon's user; "+
			"run chmod go-w on it", path, mode.Perm())
	}
	return nil
}

// Add implements Provider.
func (p *program) Add(ctx context.Context, name, value string) error {
	return p.run(ctx, "present", name, value)
}

// Remove implements Provider.
func (p *program) Remove(ctx context.Context, name, value string) error {
	return p.run(ctx, "cleanup", name, value)
}

// lingerLimit is how long a program's children may keep its output open after its end.
const lingerLimit = 5 * time.Second

// run runs the program, and ends it with its children when ctx ends.
func (p *program) run(ctx context.Context, args ...string) error {
	if err := p.check(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, p.path, args...)
	var said tail
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p.env, "/", &said, &said, lingerLimit
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it was ended: %w", context.Cause(ctx))
		}
		return fmt.Errorf("%s %s: %w; it says %q", p.path, args[0], err, string(said))
	}
	return nil
}

// A tail keeps the last bytes that are written to it.
type tail []byte

// maxTail bounds what is kept of a program's output, in bytes.
const maxTail = 2000

// Write implements io.Writer.
func (t *tail) Write(data []byte) (int, error) {
	*t = append(*t, data...)
	if over := len(*t) - maxTail; over > 0 {
		*t = slices.Clone((*t)[over:])
	}
	return len(data), nil
}

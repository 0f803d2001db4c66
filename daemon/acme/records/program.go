package records

import (
	"context"
	"fmt"
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

// check refuses a program that other users than the daemon's could replace.
func (p *program) check() error {
	fi, err := os.Stat(p.path)
	switch {
	case err != nil:
		return fmt.Errorf("program: %w", err)
	case !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0:
		return fmt.Errorf("program: %s cannot be executed", p.path)
	case fi.Mode()&0o022 != 0:
		return fmt.Errorf("program: others may change %s (mode %04o), and it runs as the daemon's user; run "+
			"chmod go-w on it", p.path, fi.Mode().Perm())
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

package buildenv

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A command is one run of a Debian tool.
type Command struct {
	Path    string
	Args    []string
	Env     []string          // all of it
	Log     io.Writer         // gets standard error as it arrives, then standard output; may be nil
	Line    func(line string) // called for each line of standard error; may be nil
	Output  func(line string) // called for each line of standard output, as it comes; may be nil
	Status  func(line string) // called for each line written to descriptor 3; may be nil
	Private bool              // in mount and process namespaces of its own
	Offline bool              // private, and in a network namespace without connections
}

// A toolError is the failure of a tool, in the tool's own words.
type toolError struct {
	tool   string
	reason string
}

func (e *toolError) Error() string { return e.tool + ": " + e.reason }

// Run waits for the command and returns its standard output. If ctx ends, the command and its descendants are killed.
func (c Command) Run(ctx context.Context) (string, error) {
	// The kernel ties Pdeathsig to the starting thread, not to the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env = c.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.Private || c.Offline {
		// The tool's mounts neither reach the host nor outlive the tool. Its processes do not either: it is the first
		// process of its namespace. That holds even if we are killed.
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	if c.Offline {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// The outputs end when the last process that holds them exits.
	cmd.WaitDelay = 20 * time.Second
	var out bytes.Buffer
	var reason firstError
	cmd.Stdout = &out
	if c.Output != nil {
		cmd.Stdout = io.MultiWriter(&out, &lineWriter{f: c.Output})
	}
	cmd.Stderr = c.errorWriter(&reason)
	wait, err := c.pipeStatus(cmd)
	if err != nil {
		return "", err
	}
	err = cmd.Run()
	wait()
	if c.Log != nil {
		// Only now: two goroutines read the two outputs, and the log need not be safe for that. A failing log does
		// not fail the build.
		_, _ = c.Log.Write(out.Bytes())
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", &toolError{tool: c.Path, reason: reason.or(err)}
	}
	return out.String(), nil
}

// errorWriter copies standard error to the log, the line function and reason.
func (c Command) errorWriter(reason *firstError) io.Writer {
	all := []io.Writer{&lineWriter{f: reason.see}}
	if c.Line != nil {
		all = append(all, &lineWriter{f: c.Line})
	}
	if c.Log != nil {
		all = append(all, c.Log)
	}
	return io.MultiWriter(all...)
}

// pipeStatus gives cmd a descriptor 3 and reads it until the command has ended. wait, called after that, returns when
// everything is read.
func (c Command) pipeStatus(cmd *exec.Cmd) (wait func(), err error) {
	if c.Status == nil {
		return func() {}, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{w}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A read error only stops the progress reports.
		_, _ = io.Copy(&lineWriter{f: c.Status}, r)
	}()
	return func() {
		w.Close()
		<-done
		r.Close()
	}, nil
}

// A lineWriter calls f for each full line written to it. Progress bars end lines with \r.
type lineWriter struct {
	f    func(string)
	part []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.part = append(w.part, p...)
	for {
		i := bytes.IndexAny(w.part, "\r\n")
		if i < 0 {
			break
		}
		w.f(string(w.part[:i]))
		w.part = w.part[i+1:]
	}
	if len(w.part) > maxLine {
		w.part = nil
	}
	return len(p), nil
}

// maxLine bounds what is kept of a line that does not end, in bytes.
const maxLine = 64 << 10

// A firstError remembers the first error of a tool; later ones are consequences. Errors of dpkg about a package take
// precedence.
type firstError struct {
	text string
	dpkg bool
}

// credentials are the user and password of an address.
var credentials = regexp.MustCompile(`//[^/@\s]*@`)

// hostPath matches an absolute path, which does not belong in an error message.
var hostPath = regexp.MustCompile(`(^|[\s'"(:])/[^/\s'"),][^\s'"),]*`)

// errorMark matches the beginning of error lines of apt, pip and npm.
var errorMark = regexp.MustCompile(`^(E: |ERROR: |npm error |npm ERR! )`)

func (e *firstError) see(line string) {
	mark := errorMark.FindString(line)
	text, ok := line[len(mark):], mark != ""
	if _, after, dpkg := strings.Cut(line, "dpkg: error "); dpkg && !e.dpkg {
		e.text, e.dpkg = "", true
		text, ok = "dpkg failed "+after, true
	}
	if ok && e.text == "" {
		text = credentials.ReplaceAllString(text, "//")
		e.text = hostPath.ReplaceAllString(text, "$1…")
	}
}

// or returns the error seen, or else the text of err.
func (e *firstError) or(err error) string {
	if e.text != "" {
		return e.text
	}
	var lost *exec.Error
	if errors.As(err, &lost) {
		return "cannot be started"
	}
	return err.Error()
}

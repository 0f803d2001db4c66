// Package launch runs `berth serve` in a separate process and reports where it listens. Tests use it, and benchmarks
// that run daemons with their own flags.
package launch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Time limits for a daemon: until it is ready, including the recovery of its containers, and until it has ended,
// including the end of all its containers.
const (
	startMost = 5 * time.Minute
	stopMost  = 2 * time.Minute
)

// A Process is a daemon that this package started.
type Process struct {
	URL string // where it listens
	Key string // its first API key

	cmd    *exec.Cmd
	say    func(line string)
	exited chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// Args returns the arguments for a daemon with the data directory dir, a free port and further flags.
func Args(dir string, flags ...string) []string {
	return append([]string{"serve", "--listen", "127.0.0.1:0", "--data", dir}, flags...)
}

// Start runs the program bin as a daemon and returns when it reports that it is ready. It passes each log line to
// say, which may be nil; say must not wait for the daemon. If Start fails, the returned Process has the log of the
// ended daemon, or is nil if none was started. Start stops a daemon that is not ready after five minutes.
func Start(bin, dir string, flags []string, say func(line string)) (*Process, error) {
	return start(bin, dir, flags, say, startMost, stopMost)
}

// start is Start with other time limits.
func start(bin, dir string, flags []string, say func(line string), most, stopMost time.Duration) (*Process, error) {
	p := &Process{cmd: exec.Command(bin, Args(dir, flags...)...), say: say, exited: make(chan struct{})}
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go p.read(log, ready)
	select {
	case p.URL = <-ready:
	case <-p.exited:
		return p, fmt.Errorf("the daemon ended before it was ready: %s", p.Log())
	case <-time.After(most):
		p.stop(syscall.SIGTERM, stopMost)
		return p, fmt.Errorf("the daemon was not ready after %v: %s", most, p.Log())
	}
	key, err := os.ReadFile(filepath.Join(dir, "api-key"))
	if err != nil {
		p.Stop(syscall.SIGTERM)
		return p, err
	}
	p.Key = strings.TrimSpace(string(key))
	return p, nil
}

// readyLine matches the log line of a daemon that is ready.
var readyLine = regexp.MustCompile(`berth is ready.* url=(\S+)`)

// read reads the daemon's log until the daemon has ended. It does not use a bufio.Scanner: a Scanner stops at a line
// that is too long, and then the daemon would block on its next log line.
func (p *Process) read(log io.Reader, ready chan<- string) {
	defer close(p.exited)
	for r := bufio.NewReader(log); ; {
		line, err := r.ReadString('\n')
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			p.took(line)
		}
		if m := readyLine.FindStringSubmatch(line); m != nil {
			select {
			case ready <- m[1]:
			default: // it has logged the line twice
			}
		}
		if err != nil {
			break
		}
	}
	// The log says why the daemon ended, or Stop has killed it.
	var status *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &status) {
		p.took(err.Error())
	}
}

// took records a log line.
func (p *Process) took(line string) {
	p.mu.Lock()
	fmt.Fprintln(&p.log, line)
	p.mu.Unlock()
	if p.say != nil {
		p.say(line)
	}
}

// Log returns everything that the daemon has logged.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// PID returns the daemon's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the daemon has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Stop sends a signal and waits for the daemon to end. It kills a daemon that has not ended after two minutes.
func (p *Process) Stop(sig syscall.Signal) { p.stop(sig, stopMost) }

func (p *Process) stop(sig syscall.Signal, most time.Duration) {
	_ = p.cmd.Process.Signal(sig) // fails only if the daemon has already ended
	select {
	case <-p.exited:
	case <-time.After(most):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

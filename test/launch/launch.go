// Package launch runs `berth serve` as a process of its own and says where it listens: for tests, and for benchmarks
// of daemons whose flags they choose.
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

// How long a daemon may take until it is ready, with all that it has to take up again, and how long to end, with all
// of its containers.
const (
	startMost = 5 * time.Minute
	stopMost  = 2 * time.Minute
)

// A Process is one daemon that was started here.
type Process struct {
	URL string // where it listens
	Key string // its first API key

	cmd    *exec.Cmd
	say    func(line string)
	exited chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// Args are a daemon's over dir, on a free port, with further flags.
func Args(dir string, flags ...string) []string {
	return append([]string{"serve", "--listen", "127.0.0.1:0", "--data", dir}, flags...)
}

// Start runs the program bin as a daemon and returns once it says that it is ready. Each line of its log goes to say,
// which may be nil; say must not wait for the daemon. With an error the Process is that of the daemon that ended, for
// its log, or nil if none began. One that is not ready after five minutes is ended.
func Start(bin, dir string, flags []string, say func(line string)) (*Process, error) {
	return start(bin, dir, flags, say, startMost, stopMost)
}

// start is Start with other bounds.
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

// readyLine is what a daemon logs when it serves.
var readyLine = regexp.MustCompile(`berth is ready.* url=(\S+)`)

// read takes the daemon's log until the daemon has ended. Not with a Scanner: one overlong line would end the
// reading, and then the daemon would wait for somebody to take the next one.
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
			default: // one who logs it twice is ready all the same
			}
		}
		if err != nil {
			break
		}
	}
	// How it ended is in its log, or it was killed from here.
	var status *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &status) {
		p.took(err.Error())
	}
}

// took keeps a line.
func (p *Process) took(line string) {
	p.mu.Lock()
	fmt.Fprintln(&p.log, line)
	p.mu.Unlock()
	if p.say != nil {
		p.say(line)
	}
}

// Log is all that the daemon said.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// PID is the daemon's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the daemon has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Stop sends a signal and waits for the daemon to end. One that has not after two minutes is killed.
func (p *Process) Stop(sig syscall.Signal) { p.stop(sig, stopMost) }

func (p *Process) stop(sig syscall.Signal, most time.Duration) {
	_ = p.cmd.Process.Signal(sig) // one that has ended already is what is wanted
	select {
	case <-p.exited:
	case <-time.After(most):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

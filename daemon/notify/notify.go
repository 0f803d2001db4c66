// Package notify tells the service manager that started the daemon how the daemon stands, by the protocol of
// sd_notify(3): ready, reloading, stopping, a line of status, and a watchdog. Without such a manager every call does
// nothing. Package main uses it.
package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Manager is the service manager. Its methods are safe for concurrent use.
type Manager struct {
	socket   string        // "": there is none
	watchdog time.Duration // 0: it wants no sign of life
}

// FromEnvironment returns the service manager that the environment names. It takes the variables out of the
// environment, so that no other process speaks in the daemon's name.
func FromEnvironment() (*Manager, error) {
	m := &Manager{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	// The variables may be meant for the process that started this one.
	if usec == "" || m.socket == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return m, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 {
		return nil, fmt.Errorf("WATCHDOG_USEC=%.40q is no number of microseconds", usec)
	}
	m.watchdog = time.Duration(n) * time.Microsecond
	return m, nil
}

// Ready says that requests are served, also after a reload.
func (m *Manager) Ready(status string) error { return m.send("READY=1", "STATUS="+oneLine(status)) }

// Status shows what the daemon is doing. `systemctl status` prints it.
func (m *Manager) Status(status string) error { return m.send("STATUS=" + oneLine(status)) }

// Reloading says that the daemon reads its configuration. Ready ends it.
func (m *Manager) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	// The manager compares the time with that of its request.
	return m.send("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(now.Nano()/1000, 10))
}

// Stopping says that the daemon ends.
func (m *Manager) Stopping() error { return m.send("STOPPING=1", "STATUS=stopping") }

// Watch sends the manager a sign of life, twice in each interval that it asks for, for as long as alive returns nil and
// until ctx ends. It returns at once if the manager wants none. Without the sign the manager restarts the daemon.
func (m *Manager) Watch(ctx context.Context, alive func(context.Context) error) {
	if m.watchdog == 0 {
		return
	}
	tick := time.NewTicker(m.watchdog / 2)
	defer tick.Stop()
	for {
		each, cancel := context.WithTimeout(ctx, m.watchdog/2)
		if alive(each) == nil {
			// A lost sign is followed by the next one in time.
			_ = m.send("WATCHDOG=1")
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// oneLine makes a text fit into one assignment.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

func (m *Manager) send(lines ...string) (err error) {
	if m.socket == "" {
		return nil
	}
	// The daemon's life must not hang on its manager's.
	const patience = 5 * time.Second
	c, err := net.DialTimeout("unixgram", m.socket, patience)
	// Who started the daemon may have waited for READY=1 only, and be gone.
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	return nil
}

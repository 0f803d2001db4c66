package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"berth/cli/app"
)

const (
	unitName = "berth.service"
	// startMost bounds the start of a daemon, with the recovery of its containers.
	startMost = 5 * time.Minute
	// stopMost bounds its end, with that of the commands in the foreground.
	stopMost = 2 * time.Minute
)

// hasUnit reports whether systemd runs this machine and has the daemon's unit.
func hasUnit(ctx context.Context) bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return false
	}
	return unitProperty(ctx, "LoadState") == "loaded"
}

// unitProperty returns a property of the daemon's unit, or "".
func unitProperty(ctx context.Context, name string) string {
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property", name, "--value", unitName).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// startUnit starts the unit, and shows what it does meanwhile.
func startUnit(ctx context.Context, say func(string, ...any)) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "systemctl", "start", unitName) // ends when the daemon is ready
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for said := ""; ; {
		select {
		case err := <-done:
			if err != nil {
				return app.WithHint(fmt.Errorf("starting %s: %s", unitName, strings.TrimSpace(stderr.String())),
					"`journalctl -u berth -n 50` shows why")
			}
			return nil
		case <-tick.C:
			if status := unitProperty(ctx, "StatusText"); status != "" && status != said {
				said = status
				say("%s", status)
			}
		}
	}
}

// serveArgs returns the command line of a daemon with the flags that were given to `berth up`.
func (u *up) serveArgs() []string {
	args := []string{"serve", "--config=" + u.in.file}
	for key, v := range u.in.given {
		for _, text := range v.Texts {
			args = append(args, "--"+key+"="+text)
		}
	}
	return append(args, "--data="+u.cfg.Dir) // wins over one that was given
}

// startInBackground starts the daemon without a service manager and returns when it serves. It plays the manager's part
// during the start, so the daemon tells it what it does.
func (u *up) startInBackground(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "berth-up-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(u.cfg.Dir, 0o711); err != nil {
		return err
	}
	path := filepath.Join(u.cfg.Dir, "daemon.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	began, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, u.serveArgs()...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's signals are not for it
	u.say("starting the daemon; its log is %s", path)
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	ready := make(chan struct{})
	go u.listen(conn, ready)
	var why error
	select {
	case <-ready:
		return nil
	case <-exited:
		return errors.New("the daemon ended before it was ready: " + logSince(path, began))
	case <-ctx.Done():
		why = ctx.Err()
	case <-time.After(startMost):
		why = fmt.Errorf("the daemon was not ready after %v; its log is %s", startMost, path)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	<-exited
	return why
}

// listen shows what a starting daemon says, and closes ready when it serves.
func (u *up) listen(conn net.Conn, ready chan<- struct{}) {
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		lines := strings.Split(string(buf[:n]), "\n")
		if slices.Contains(lines, "READY=1") {
			close(ready)
			return
		}
		for _, line := range lines {
			if status, ok := strings.CutPrefix(line, "STATUS="); ok {
				u.say("%s", status)
			}
		}
	}
}

// logSince returns the last lines of a log from an offset on.
func logSince(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	const most = 10 // the reason is in the last one
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// downCommand is `berth down`.
func downCommand() *cobra.Command {
	o := newOptions()
	var file configFile
	cmd := &cobra.Command{
		Use: "down", Short: "Stop the daemon; containers go on",
		Long: `Stop the daemon and wait for its end. Containers go on, and the next daemon attaches to them; commands in
the foreground end. A daemon that was started with --stop-on-exit stops its containers, which keep their files.`,
		Args: app.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := app.UntilSignal(cmd.Context())
			defer stop()
			_, cfg, err := load(readInputs(file.path(cmd.Flags()), o))
			if err != nil {
				return err
			}
			if err := absolute(&cfg); err != nil {
				return err
			}
			return app.WithSignal(ctx, down(ctx, cfg.Dir))
		},
	}
	cmd.Flags().AddFlag(o.flags.Lookup("data"))
	file.addFlag(cmd.Flags())
	return cmd
}

// down stops the daemon over a data directory.
func down(ctx context.Context, dir string) error {
	p, err := readPublished(dir)
	if errors.Is(err, errNotRunning) {
		fmt.Println("no daemon runs over " + dir)
		return nil
	}
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("down stops the daemon and needs root; run it with sudo")
	}
	// systemd would start a daemon again that it did not stop by itself.
	if hasUnit(ctx) && unitProperty(ctx, "MainPID") == fmt.Sprint(p.PID) {
		if out, err := exec.CommandContext(ctx, "systemctl", "stop", unitName).CombinedOutput(); err != nil {
			return fmt.Errorf("stopping %s: %s", unitName, bytes.TrimSpace(out))
		}
	} else if err := p.stop(ctx); err != nil {
		return err
	}
	fmt.Println("the daemon has ended; its containers stay")
	return nil
}

// stop ends the daemon's process and waits for its end.
func (p published) stop(ctx context.Context) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stopping the daemon: %w", err)
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	defer process.Close()
	// From here on the number cannot become another process's.
	if birth, err := birthOf(p.PID); err != nil || birth != p.Birth {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stopping the daemon: %w", err)
	}
	for end := time.Now().Add(stopMost); ; {
		// Readable means ended. Each second is a chance for ^C.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(end):
			return fmt.Errorf("the daemon, process %d, has not ended after %v; its log says what it waits for", p.PID,
				stopMost)
		}
	}
}

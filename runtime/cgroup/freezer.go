package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// HaltTimeout bounds how long a freeze of a sandbox's processes may take. A process in an uninterruptible system
// call, such as one that waits for a disk, delays the freeze.
const HaltTimeout = 5 * time.Second

// ErrNoFreezer is the reason why a sandbox cannot be paused.
var ErrNoFreezer = errors.New("the host has no cgroup freezer")

// A freezer is the cgroup directory with which a sandbox is frozen.
type freezer struct {
	dir string
	v2  bool
}

// FindFreezer finds the freezer of a sandbox that exists.
func FindFreezer(sandbox string) (freezer, error) {
	dir, v2 := Dir(sandbox, "freezer")
	if !v2 {
		return freezer{dir: dir}, nil
	}
	switch _, err := os.Stat(filepath.Join(dir, "cgroup.freeze")); {
	case err == nil:
		return freezer{dir: dir, v2: true}, nil
	case len(Dirs(sandbox)) > 0:
		return freezer{}, ErrNoFreezer
	}
	return freezer{}, os.ErrNotExist
}

// Ended reports whether the freezer's cgroup has no process left. If the cgroup is being removed, its files are
// missing or return ENODEV.
func (f freezer) Ended(context.Context) (bool, error) {
	list, err := os.ReadFile(filepath.Join(f.dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return true, nil
	}
	return err == nil && len(bytes.TrimSpace(list)) == 0, err
}

func (f freezer) Paused(context.Context) bool {
	if f.v2 {
		return f.says("cgroup.freeze", "1")
	}
	return f.says("freezer.state", "FROZEN") || f.says("freezer.state", "FREEZING")
}

func (f freezer) says(file, word string) bool {
	got, err := os.ReadFile(filepath.Join(f.dir, file))
	return err == nil && string(bytes.TrimSpace(got)) == word
}

func (f freezer) write(file, word string) error {
	return os.WriteFile(filepath.Join(f.dir, file), []byte(word), 0)
}

// Resume thaws the processes. They run when Resume returns.
func (f freezer) Resume(context.Context) error {
	if f.v2 {
		return f.write("cgroup.freeze", "0")
	}
	return f.write("freezer.state", "THAWED")
}

// Pause freezes the processes. It returns once all of them are frozen.
func (f freezer) Pause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, HaltTimeout)
	defer cancel()
	if f.v2 {
		return f.halt2(ctx)
	}
	// A thread in execve waits for the other threads of its process to end, and these may be frozen already. So if a
	// freeze does not complete, all processes run for a moment before the next attempt. Each attempt has more time,
	// since a freeze may just be slow: we have seen some 10 ms on v1.
	for long := 10 * time.Millisecond; ; long *= 2 {
		if still, err := f.hold(ctx, long); still || err != nil {
			return err
		}
		if err := f.Resume(ctx); err != nil {
			return err
		}
		if err := sleep(ctx, long/10); err != nil {
			return err
		}
	}
}

// hold waits at most long until all processes are frozen, and reports whether they are. v1 sends no event, and a
// process that was forked meanwhile requires writing the state again.
func (f freezer) hold(ctx context.Context, long time.Duration) (still bool, err error) {
	const longest = 10 * time.Millisecond
	end := time.Now().Add(long)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, longest) {
		if err := f.write("freezer.state", "FROZEN"); err != nil {
			return false, err
		}
		if f.says("freezer.state", "FROZEN") {
			return true, nil
		}
		if time.Now().After(end) {
			return false, nil
		}
		if err := sleep(ctx, pause); err != nil {
			return false, err
		}
	}
}

// sleep waits for d, or fails with ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return stillMoving(ctx)
	case <-time.After(d):
		return nil
	}
}

func stillMoving(ctx context.Context) error {
	return fmt.Errorf("the processes do not stand still: %w", ctx.Err())
}

// halt2 freezes on v2 and waits for its event.
func (f freezer) halt2(ctx context.Context) error {
	events, err := os.Open(filepath.Join(f.dir, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	if err := f.write("cgroup.freeze", "1"); err != nil {
		return err
	}
	buf := make([]byte, 256)
	for {
		n, err := events.ReadAt(buf, 0) // reading arms the next event
		if n == 0 {
			return err
		}
		if bytes.Contains(buf[:n], []byte("frozen 1")) {
			return nil
		}
		if ctx.Err() != nil {
			return stillMoving(ctx)
		}
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

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

// HaltTimeout bounds how long the processes of a sandbox may take to stand still. A process in the middle of a
// call to the kernel that cannot be interrupted, such as one that waits for a disk, holds that up.
const HaltTimeout = 5 * time.Second

// ErrNoFreezer is why a sandbox cannot be paused.
var ErrNoFreezer = errors.New("the host has no cgroup freezer")

// A freezer is the cgroup directory that a sandbox is frozen by.
type freezer struct {
	dir string
	v2  bool
}

// FindFreezer finds what a sandbox that is there is frozen by.
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

// ended reports whether no process is left in it. A cgroup that is removed meanwhile has no files, or ones that say
// ENODEV.
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

// release takes effect when it returns.
func (f freezer) Resume(context.Context) error {
	if f.v2 {
		return f.write("cgroup.freeze", "0")
	}
	return f.write("freezer.state", "THAWED")
}

// halt returns once everything stands still.
func (f freezer) Pause(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, HaltTimeout)
	defer cancel()
	if f.v2 {
		return f.halt2(ctx)
	}
	// A thread that is executing a program waits for the others of its process to end, and these may stand still
	// already. So all go on for a moment where some do not come to rest, and have longer each time, since others are
	// but slow: v1 has shown some 10 ms.
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

// hold looks for so long whether everything comes to rest. v1 tells nobody when it has, and a process that was forked
// meanwhile needs the state to be written once more.
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

// sleep fails with ctx.
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

// halt2 waits for the event that v2 has.
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
		n, err := events.ReadAt(buf, 0) // reading is what arms the next event
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

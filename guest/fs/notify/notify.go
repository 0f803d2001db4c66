// Package notify reads the kernel's notifications about changes of files (inotify). guest/fs uses it to learn whether
// anything has changed since a walk, and to tell watchers what changed. The package knows no paths: it maps watch
// descriptors to nothing.
package notify

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// An Instance is one inotify queue.
type Instance struct {
	f   *os.File
	raw syscall.RawConn
}

// Bounded reports whether the kernel drops events of a queue that nobody reads, and says so. gVisor does not, so there
// a queue must be read all the time.
func Bounded() bool {
	_, err := os.Stat("/proc/sys/fs/inotify/max_queued_events")
	return err == nil
}

// An Event is one notification. Mask has the bits of inotify.
type Event struct {
	WD     int32
	Mask   uint32
	Cookie uint32 // links the two halves of a rename
	Name   string // of an entry of the watched directory, or "" for the directory itself
}

// Open makes a queue. unix.EMFILE means that the limit of inotify instances is reached. Only a queue with waits has
// Wait: each of its events wakes the program.
func Open(waits bool) (*Instance, error) {
	flags := unix.IN_CLOEXEC
	if waits {
		flags |= unix.IN_NONBLOCK // so that package os gives it to the poller
	}
	fd, err := unix.InotifyInit1(flags)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	raw, err := f.SyscallConn()
	if err == nil && !waits {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Instance{f: f, raw: raw}, nil
}

// Close drops the queue and its watches.
func (in *Instance) Close() { _ = in.f.Close() }

// Add watches the file or directory of an open descriptor. A second watch of the same file has the same number, and
// the mask of the latest call. unix.ENOSPC means that the limit of watches is reached.
func (in *Instance) Add(fd int, mask uint32) (wd int32, err error) {
	if cerr := in.raw.Control(func(queue uintptr) {
		var n int
		n, err = unix.InotifyAddWatch(int(queue), "/proc/self/fd/"+strconv.Itoa(fd), mask)
		wd = int32(n)
	}); cerr != nil {
		return -1, cerr
	}
	return wd, err
}

// Remove ends a watch.
func (in *Instance) Remove(wd int32) {
	_ = in.raw.Control(func(queue uintptr) { _, _ = unix.InotifyRmWatch(int(queue), uint32(wd)) })
}

// MinBuffer is the size of the smallest buffer that has room for any event, in bytes.
const MinBuffer = unix.SizeofInotifyEvent + unix.NAME_MAX + 1

// Drain returns the events that are there now, as far as buf has room, or none. It never waits. The events are valid
// until the next call with buf.
func (in *Instance) Drain(buf []byte) (list []Event, err error) {
	n := 0
	cerr := in.raw.Control(func(fd uintptr) {
		for {
			if n, err = unix.Read(int(fd), buf); err != unix.EINTR {
				return
			}
		}
	})
	switch {
	case cerr != nil:
		return nil, cerr
	case err == unix.EAGAIN:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return parse(buf[:n]), nil
}

// Wait waits until there is an event. It returns an error after Close.
func (in *Instance) Wait() error {
	return in.raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return err != nil && err != unix.EINTR || n > 0
	})
}

// parse decodes what the kernel has written.
func parse(b []byte) (list []Event) {
	for len(b) >= unix.SizeofInotifyEvent {
		size := int(binary.NativeEndian.Uint32(b[12:]))
		end := unix.SizeofInotifyEvent + size
		if size < 0 || end > len(b) {
			return list
		}
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
		list = append(list, Event{
			WD: int32(binary.NativeEndian.Uint32(b)), Mask: binary.NativeEndian.Uint32(b[4:]),
			Cookie: binary.NativeEndian.Uint32(b[8:]), Name: string(name),
		})
		b = b[end:]
	}
	return list
}

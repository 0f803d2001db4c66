package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/launch"
)

// Dial connects to the guest of sandbox id. The first call after a start from the warm pool returns the connection
// that the pool has kept, as Config.Handshake left it.
func (r *Runtime) Dial(ctx context.Context, id string) (net.Conn, error) {
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return nil, noSandbox("dial", id)
	}
	if conn := r.claims.takeConn(id); conn != nil {
		return conn, nil
	}
	return r.dialAgain(ctx, id)
}

// dialAgain works like Dial, but always makes a new connection.
func (r *Runtime) dialAgain(ctx context.Context, id string) (net.Conn, error) {
	conn, err := dialGuest(ctx, r.runPath(r.claims.sandbox(id)))
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, fs.ErrNotExist):
		return nil, noSandbox("dial", id)
	case errors.Is(err, unix.ECONNREFUSED):
		// The socket's file outlives the guest. Stop removes it.
		return nil, proto.Errorf(proto.NotFound, "dial", id, "container %s has ended", id)
	}
	r.log.Warn("dialling a guest", "sandbox", id, "err", err)
	return nil, proto.Errorf(proto.Unavailable, "dial", id,
		"container %s does not answer; delete it or try again", id)
}

func noSandbox(op, id string) error {
	return proto.Errorf(proto.NotFound, op, id, "container %.64q is not running", id)
}

// dialGuest connects to guest.sock in dir. Root inside the sandbox owns that directory and may put anything there,
// for example a symlink to a socket of the host. So dialGuest opens the file without following symlinks, checks its
// type, and connects through its descriptor.
func dialGuest(ctx context.Context, dir string) (net.Conn, error) {
	dirfd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dirfd)
	fd, err := unix.Openat(dirfd, launch.SocketName, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is not a socket (mode %o)", launch.SocketName, st.Mode)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}

// doorbells keeps the inotify instances of idle doorbells. Closing one makes the kernel wait until all processors
// have noticed, some 10 ms. Removing its watch does not.
type doorbells struct {
	idle chan *os.File // inotify instances without a watch
}

// idleDoorbells is how many instances are kept.
const idleDoorbells = 4

func newDoorbells() doorbells { return doorbells{make(chan *os.File, idleDoorbells)} }

// A doorbell reports when something appears in a directory.
type doorbell struct {
	of    doorbells
	file  *os.File // an inotify instance; nil if none was available
	watch uint32
}

// hang watches dir. Call it before the awaited file can appear. If the machine has no inotify instance left, the
// doorbell polls instead.
func (ds doorbells) hang(dir string) doorbell {
	var file *os.File
	select {
	case file = <-ds.idle:
	default:
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return doorbell{}
		}
		file = os.NewFile(uintptr(fd), "inotify")
	}
	d := doorbell{of: ds, file: file}
	err := d.withFD(func(fd int) error {
		watch, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ATTRIB)
		d.watch = uint32(watch)
		return err
	})
	if err != nil {
		file.Close()
		return doorbell{}
	}
	return d
}

func (d doorbell) withFD(f func(fd int) error) error {
	raw, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	if control := raw.Control(func(fd uintptr) { err = f(int(fd)) }); control != nil {
		return control
	}
	return err
}

// wait returns at the next event, or after the given time at most.
func (d doorbell) wait(most time.Duration) {
	if d.file == nil {
		time.Sleep(min(most, 10*time.Millisecond))
		return
	}
	var buf [4096]byte
	_ = d.file.SetReadDeadline(time.Now().Add(most))
	_, _ = d.file.Read(buf[:])
}

// takeDown ends the watch. No call of wait may be running.
func (d doorbell) takeDown() {
	if d.file == nil {
		return
	}
	err := d.withFD(func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, d.watch) // fails if the directory is gone; its watch is gone with it
		if err != nil && err != unix.EINVAL {
			return err
		}
		var buf [4096]byte
		for err != unix.EAGAIN { // reads the remaining events
			if _, err = unix.Read(fd, buf[:]); err != nil && err != unix.EAGAIN && err != unix.EINTR {
				return err
			}
		}
		return nil
	})
	if err == nil {
		select {
		case d.of.idle <- d.file:
			return
		default:
		}
	}
	d.file.Close()
}

// close closes the idle instances.
func (ds doorbells) close() {
	for {
		select {
		case file := <-ds.idle:
			file.Close()
		default:
			return
		}
	}
}

// awaitGuest returns once the guest in dir accepts a connection, or when gone is closed or ctx ends. bell must have
// been made before the guest started.
func awaitGuest(ctx context.Context, bell doorbell, dir string, gone <-chan struct{}) error {
	// bind makes the file. listen follows a moment later and causes no event.
	const listenGrace = time.Millisecond
	for {
		conn, err := dialGuest(ctx, dir)
		if err == nil {
			return conn.Close()
		}
		wait := 50 * time.Millisecond // limits how late the end of the guest or of ctx is seen
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			wait = listenGrace
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		bell.wait(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-gone:
			return errGuestEnded
		default:
		}
	}
}

// watchProcess returns a channel that is closed when process pid has ended or when forget is called. It asks the
// kernel and not the runtime, whose events may come late or not at all.
func watchProcess(pid int) (gone <-chan struct{}, forget func(), err error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// A pidfd becomes readable when its process ends. Close ends the wait, too.
		_ = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
	}()
	return ended, func() { file.Close(); <-ended }, nil
}

var errGuestEnded = errors.New("the guest ended before it answered")

// runPath returns the directory that sandbox id sees as /.berth/run. It is part of the layer: root inside may write
// to it, and those files must count against the disk limit.
func (r *Runtime) runPath(id string) string {
	return filepath.Join(r.disk.LayerPath(id), "run")
}

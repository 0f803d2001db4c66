package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/layer"
	"berth/runtime/ocispec"
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
	fd, err := unix.Openat(dirfd, ocispec.SocketName, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is not a socket (mode %o)", ocispec.SocketName, st.Mode)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}

// awaitGuest returns once the guest in dir accepts a connection, or when gone is closed or ctx ends. It looks often
// at first and less often the longer the guest takes: that adds a twentieth to a start at most, and a burst of starts
// spends little time on it. The kernel reports no event when a socket begins to listen. inotify reports only its file,
// costs one of the host's 128 instances for each start, and makes each close wait for all processors.
func awaitGuest(ctx context.Context, dir string, gone <-chan struct{}) error {
	const shortest, longest = 200 * time.Microsecond, 50 * time.Millisecond
	for began := time.Now(); ; {
		conn, err := dialGuest(ctx, dir)
		if err == nil {
			return conn.Close()
		}
		// bind makes the file of the socket. listen follows a moment later.
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-gone:
			return errGuestEnded
		case <-time.After(min(max(shortest, time.Since(began)/20), longest)):
		}
	}
}

var errGuestEnded = errors.New("the guest ended before it answered")

// runPath returns the directory that sandbox id sees as /.berth/run. It is part of the layer: root inside may write
// to it, and those files must count against the disk limit.
func (r *Runtime) runPath(id string) string {
	return filepath.Join(r.disk.LayerPath(id), layer.Run)
}

package sandboximage

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"berth/proto"
)

// A tool is a program that a build runs, with its Debian package.
type tool struct{ program, pkg string }

// tools are what every build runs.
var tools = []tool{
	{"mmdebstrap", "mmdebstrap"},
	{"apt-get", "apt"},
	{"dpkg", "dpkg"},
}

// Programs that fetch wheels and npm modules.
var (
	pip = tool{"pip3", "python3-pip"}
	npm = tool{"npm", "npm"}
)

// tools returns the programs that a build of the definition runs.
func (d definition) tools() []tool {
	list := slices.Clone(tools)
	if slices.ContainsFunc(d.additions, func(a addition) bool { return len(a.wheels) > 0 }) {
		list = append(list, pip)
	}
	if slices.ContainsFunc(d.additions, func(a addition) bool { return a.npm }) {
		list = append(list, npm)
	}
	return list
}

// checkHost reports missing requirements of a build before minutes of work.
func checkHost(d definition) error {
	if os.Geteuid() != 0 {
		return proto.Errorf(proto.PermissionDenied, op, "",
			"building an image creates files of many owners and needs root; run it again with sudo")
	}
	for _, t := range d.tools() {
		if _, err := exec.LookPath(t.program); err != nil {
			return missing(t.pkg)
		}
	}
	return nil
}

// missing names the Debian package to install.
func missing(pkg string) error {
	return proto.Errorf(proto.Unsupported, op, pkg, "%s is not installed; install it with: apt-get install %s", pkg,
		pkg)
}

// unavailable is a failure that may be temporary, or caused by the host's apt configuration.
func unavailable(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	reason := ""
	var t *toolError
	if errors.As(err, &t) {
		reason = " (" + t.Error() + ")"
	}
	return proto.Errorf(proto.Unavailable, op, "", "%s%s; check the network and this machine's apt sources, then "+
		"run it again", what, reason)
}

// ioError is a failure of the host's file system. It leaves out paths.
func ioError(what string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		err = no
	}
	return proto.Errorf(proto.Internal, op, what, "%s: %v", what, err)
}

// lockPoll is the time between two attempts of a waiting build. A context cannot interrupt flock(2).
const lockPoll = 200 * time.Millisecond

// lock makes this the only build in the cache, and returns the function that ends that. The kernel drops the lock of
// a dead process.
func (b *build) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(b.cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, ioError("the cache's lock", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, ioError("the cache's lock", err)
		}
		b.step(Step{Name: StepWaiting})
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// replaceFile replaces the file at path with the output of write, or leaves it unchanged.
func replaceFile(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once renamed
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// copyFile makes dst a copy of src, without copying bytes if the file system can.
func copyFile(dst, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	return replaceFile(dst, func(out *os.File) error {
		_, err := io.Copy(out, in)
		return err
	})
}

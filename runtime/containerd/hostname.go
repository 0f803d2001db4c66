package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/diskpool"
	"berth/runtime/layer"
	"berth/runtime/mountns"
)

// A sandbox has a file at /etc/hosts, in its run directory on the host, so that its own name resolves inside. Root in
// the sandbox may change the file, or replace it in the run directory; the disk limit bounds it.

// hostsLine marks the line of /etc/hosts with the sandbox's own name. Services that listen on the usual loopback
// address answer under that name, too.
const hostsLine = "127.0.0.1\t%s # this container\n"

const hostsRest = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// maxHosts bounds what is read of a changed file, in bytes.
const maxHosts = 64 << 10

// makeHosts writes the file of host names of the sandbox over a layer. A layer that was kept has the file that it had.
// It may be called again after it failed.
func makeHosts(dir string, owner uint32, name string) error {
	run := filepath.Join(dir, layer.Run)
	path := filepath.Join(run, layer.Hosts)
	err := os.Rename(filepath.Join(dir, layer.Hosts), path) // layer.Clear keeps only a regular file
	if errors.Is(err, fs.ErrNotExist) && !diskpool.Exists(path) {
		if err = os.WriteFile(path, []byte(hostsRest+fmt.Sprintf(hostsLine, name)), 0o644); err != nil {
			_ = os.Remove(path) // it may be a part of one
		}
	} else if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = changeHosts(run, name)
	}
	return errors.Join(err, os.Chmod(path, 0o644), os.Lchown(path, int(owner), int(owner)))
}

// changeHosts puts another name into the file of a running sandbox, which is hostile: a file that is no plain one any
// more, or too large, stays as it is.
func changeHosts(run, name string) error {
	f, err := os.OpenFile(filepath.Join(run, layer.Hosts), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) ||
			errors.Is(err, unix.EISDIR) {
			return nil
		}
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() > maxHosts {
		return err
	}
	old, err := io.ReadAll(io.LimitReader(f, maxHosts))
	if err != nil {
		return err
	}
	mark := hostsLine[strings.Index(hostsLine, "#"):]
	var text strings.Builder
	for line := range strings.Lines(string(old)) {
		if !strings.HasSuffix(line, mark) {
			text.WriteString(line)
		}
	}
	fmt.Fprintf(&text, hostsLine, name)
	if _, err := f.WriteAt([]byte(text.String()), 0); err != nil {
		return err
	}
	return f.Truncate(int64(text.Len()))
}

// nameHost gives a running sandbox of the class runc, whose first process is pid, another host name.
func (r *Runtime) nameHost(sandbox string, pid int, name string) error {
	names, err := os.Open(fmt.Sprintf("/proc/%d/ns/uts", pid))
	if err != nil {
		return err
	}
	defer names.Close()
	if err := mountns.SetHostname(names, name); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	return changeHosts(r.runPath(sandbox), name)
}

// SetHostname changes the host name of a running sandbox. gVisor's kernel takes none from outside.
func (r *Runtime) SetHostname(ctx context.Context, id, name string) error {
	const op = "set host name"
	unlock, err := r.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	sandbox := r.claims.sandbox(id)
	gvisor, err := r.runsGVisor(ctx, sandbox)
	if gvisor {
		return proto.Errorf(proto.Unsupported, op, id, "a running container of the class gvisor keeps its host name")
	}
	var pid int
	if err == nil {
		pid, err = r.firstProcess(ctx, sandbox)
	}
	if err == nil {
		err = r.nameHost(sandbox, pid, name)
	}
	if errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended; the next one gets the name
	}
	if err != nil {
		return r.fail(ctx, op, id, err)
	}
	return nil
}

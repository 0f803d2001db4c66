package attack

import (
	"crypto/rand"
	"io"

	"golang.org/x/sys/unix"
)

// makeDeep creates nested directories and returns how many. The whole path would exceed the kernel's limit (4096
// bytes), so each step starts from a descriptor of the previous directory.
func makeDeep(path string, depth int) (int, error) {
	if err := unix.Mkdir(path, 0o755); err != nil {
		return 0, err
	}
	at, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	for n := range depth {
		if err != nil {
			return n, err
		}
		if err = unix.Mkdirat(at, "d", 0o755); err != nil {
			return n, err
		}
		var next int
		next, err = unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		_ = unix.Close(at)
		at = next
	}
	return depth, err
}

// endless returns n incompressible bytes.
func endless(n int64) io.Reader { return io.LimitReader(rand.Reader, n) }

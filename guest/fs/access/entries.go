package access

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// DirEntry is a name in a directory and its type, unix.DT_UNKNOWN if the file system does not report one.
type DirEntry struct {
	Name string
	Kind byte
}

// ReadEntries reads up to most entries of an open directory. It is for directories that are read with each command.
// Package os makes more system calls, since its files may use the poller.
func ReadEntries(d int, buf []byte, most int) (list []DirEntry, err error) {
	err = EachEntry(d, buf, func(name []byte, kind byte) bool {
		list = append(list, DirEntry{string(name), kind})
		return len(list) < most
	})
	return list, err
}

// EachEntry calls fn with the entries of an open directory, except "." and "..", until it returns false. name is valid
// during the call.
func EachEntry(d int, buf []byte, fn func(name []byte, kind byte) bool) error {
	for {
		n, err := unix.Getdents(d, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 || !eachIn(buf[:n], fn) {
			return err
		}
	}
}

// direntHeader is the size of struct linux_dirent64 before its name: two 8-byte numbers, its own length, the type.
const direntHeader = 19

// eachIn calls fn with the entries that the kernel has written. It reports whether fn wants more.
func eachIn(b []byte, fn func(name []byte, kind byte) bool) bool {
	for len(b) > direntHeader {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= direntHeader || size > len(b) {
			return true
		}
		name, _, _ := bytes.Cut(b[direntHeader:size], []byte{0})
		if s := string(name); s != "." && s != ".." && !fn(name, b[18]) {
			return false
		}
		b = b[size:]
	}
	return true
}

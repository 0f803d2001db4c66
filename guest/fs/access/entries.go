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
	for len(list) < most {
		n, err := unix.Getdents(d, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list, err
		}
		list = appendEntries(list, buf[:n])
	}
	return list[:most], nil
}

// direntHeader is the size of struct linux_dirent64 before its name: two 8-byte numbers, its own length, the type.
const direntHeader = 19

// appendEntries adds the entries that the kernel has written, except "." and "..".
func appendEntries(list []DirEntry, b []byte) []DirEntry {
	for len(b) > direntHeader {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= direntHeader || size > len(b) {
			return list
		}
		name, _, _ := bytes.Cut(b[direntHeader:size], []byte{0})
		if s := string(name); s != "." && s != ".." {
			list = append(list, DirEntry{s, b[18]})
		}
		b = b[size:]
	}
	return list
}

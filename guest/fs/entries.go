package fs

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A dirEntry is a name in a directory and what it stands for, unix.DT_UNKNOWN where the file system does not say.
type dirEntry struct {
	Name string
	kind byte
}

// ReadEntries reads an open directory up to most entries. It is for what is looked at with each command: package os
// asks more of the kernel, since its files may have to be waited for.
func ReadEntries(d int, buf []byte, most int) (list []dirEntry, err error) {
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

// direntHeader is what struct linux_dirent64 has before its name: two numbers of eight bytes, its own length, the kind.
const direntHeader = 19

// appendEntries adds what the kernel has written, but for the directory itself and the one above.
func appendEntries(list []dirEntry, b []byte) []dirEntry {
	for len(b) > direntHeader {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= direntHeader || size > len(b) {
			return list
		}
		name, _, _ := bytes.Cut(b[direntHeader:size], []byte{0})
		if s := string(name); s != "." && s != ".." {
			list = append(list, dirEntry{s, b[18]})
		}
		b = b[size:]
	}
	return list
}

package proc

import (
	"golang.org/x/sys/unix"

	"berth/guest/user"
)

// A Program is a program that is ready to start.
type Program struct {
	User    user.User
	Path    string
	StatKey StatKey // of the file at Path
	Argv    []string
	Env     []string
	Dir     string
}

// Files are the descriptors that a child gets.
type Files struct {
	FDs []int // 0, 1, 2 and the following ones
	TTY bool  // FDs[0] becomes the controlling terminal
}

// A StatKey identifies a file and its state. It is zero for a missing file.
type StatKey struct {
	dev, ino     uint64
	mode, uid    uint32
	mtime, ctime unix.Timespec
}

// StatKeyOf returns the key of the file that st describes.
func StatKeyOf(st *unix.Stat_t) StatKey {
	return StatKey{uint64(st.Dev), st.Ino, st.Mode, st.Uid, st.Mtim, st.Ctim}
}

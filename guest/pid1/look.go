package pid1

import "golang.org/x/sys/unix"

// A look tells whether a file is the one it was, and as it was. It is zero for one that is not there.
type look struct {
	dev, ino     uint64
	mode, uid    uint32
	mtime, ctime unix.Timespec
}

func lookOf(st *unix.Stat_t) look {
	return look{uint64(st.Dev), st.Ino, st.Mode, st.Uid, st.Mtim, st.Ctim}
}

// is reports whether a path below an open directory leads to a file that still looks so, and no link.
func (l look) is(at int, path string) bool {
	var st unix.Stat_t
	return l.ino != 0 && unix.Fstatat(at, path, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && lookOf(&st) == l
}

// looks are those of some files, in their order.
type looks [3]look

// looksOf takes note of files, which are as many as looks at most.
func looksOf(files []string) (l looks) {
	for i, file := range files {
		var st unix.Stat_t
		if unix.Stat(file, &st) == nil {
			l[i] = lookOf(&st)
		}
	}
	return l
}

package pid1

import "golang.org/x/sys/unix"

// A statKey tells whether a file is the one it was, and as it was. It is zero for one that is not there.
type statKey struct {
	dev, ino     uint64
	mode, uid    uint32
	mtime, ctime unix.Timespec
}

func statKeyOf(st *unix.Stat_t) statKey {
	return statKey{uint64(st.Dev), st.Ino, st.Mode, st.Uid, st.Mtim, st.Ctim}
}

// is reports whether a path below an open directory leads to a file that still looks so, and no link.
func (l statKey) is(at int, path string) bool {
	var st unix.Stat_t
	return l.ino != 0 && unix.Fstatat(at, path, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && statKeyOf(&st) == l
}

// statKeys are those of some files, in their order.
type statKeys [3]statKey

// statKeysOf takes note of files, which are as many as looks at most.
func statKeysOf(files []string) (l statKeys) {
	for i, file := range files {
		var st unix.Stat_t
		if unix.Stat(file, &st) == nil {
			l[i] = statKeyOf(&st)
		}
	}
	return l
}

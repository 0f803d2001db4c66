package pid1

import "golang.org/x/sys/unix"

// A statKey identifies a file and its state. It is zero for a missing file.
type statKey struct {
	dev, ino     uint64
	mode, uid    uint32
	mtime, ctime unix.Timespec
}

func statKeyOf(st *unix.Stat_t) statKey {
	return statKey{uint64(st.Dev), st.Ino, st.Mode, st.Uid, st.Mtim, st.Ctim}
}

// statKeys are the keys of several files, in order.
type statKeys [3]statKey

// statKeysOf returns the keys of the files, at most as many as statKeys holds.
func statKeysOf(files []string) (l statKeys) {
	for i, file := range files {
		var st unix.Stat_t
		if unix.Stat(file, &st) == nil {
			l[i] = statKeyOf(&st)
		}
	}
	return l
}

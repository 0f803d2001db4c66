package layer

import (
	"archive/tar"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
)

// A stamp is the time of a file's last change of any kind. Programs can set a file's other times, but not this one.
type stamp struct {
	inode
	changed syscall.Timespec
}

// stamps are those of a whole tree, by name. They determine what a layer contains. nil means an empty tree.
type stamps map[string]stamp

// StampTree takes the stamps of all files below root.
func StampTree(root string) (stamps, error) {
	s := stamps{}
	err := walk(root, func(name string, info fs.FileInfo) error {
		s[name] = stampOf(info)
		return nil
	})
	return s, err
}

func stampOf(info fs.FileInfo) stamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{inode{st.Dev, st.Ino}, st.Ctim}
}

// has reports whether the file is unchanged.
func (s stamps) has(name string, info fs.FileInfo) bool {
	then, ok := s[name]
	return ok && then == stampOf(info)
}

// whiteoutPrefix begins the name of an entry that removes a file of a layer below.
const whiteoutPrefix = ".wh."

// whiteouts writes entries for files removed since before. A removed directory needs only one entry.
func (t *tree) whiteouts() error {
	if t.before == nil {
		return nil
	}
	left := maps.Clone(t.before)
	err := walk(t.root, func(name string, info fs.FileInfo) error {
		delete(left, name)
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		dir, base := path.Split(name)
		if info, err := os.Lstat(filepath.Join(t.root, dir)); err != nil || !info.IsDir() {
			continue
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: dir + whiteoutPrefix + base, ModTime: t.epoch}
		if err := t.w.WriteHeader(h); err != nil {
			return err
		}
	}
	return nil
}

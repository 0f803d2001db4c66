package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/runtime/diskpool"
)

// Stubs are what the sandbox of a step leaves in its writable layers: mount points that the runtime makes because the
// image lacks them, and owners that are users of the host. Neither belongs to the image.
type Stubs struct {
	first   int                      // the host's user that was root inside
	uppers  []string                 // the writable layers; the first is the root's if there are missing ones
	missing []string                 // mount points below the first layer, deeper ones first
	times   map[string]unix.Timespec // of the directories that were there, before the mount points
}

// find finds the mount points that a mounted root lacks, with their missing parents.
func (s *Stubs) find(root string, mounts []specs.Mount) error {
	for _, m := range mounts {
		if err := s.findOne(root, m.Destination); err != nil {
			return err
		}
	}
	slices.SortFunc(s.missing, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return nil
}

// findOne adds one mount point. It resolves links as the runtime will.
func (s *Stubs) findOne(root, path string) error {
	below := ""
	for at := filepath.Clean("/" + path); ; at = filepath.Dir(at) {
		real, changed, err := place(root, at)
		if err != nil && at != "/" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)) {
			below = filepath.Join(filepath.Base(at), below)
			continue
		}
		if err != nil {
			return fmt.Errorf("%.200q: %w", at, err)
		}
		if below != "" {
			s.times[real] = changed
		}
		for ; below != "" && below != "."; below = filepath.Dir(below) {
			s.missing = append(s.missing, filepath.Join(real, below))
		}
		return nil
	}
}

// place returns where a path of root is without its links, and the time of its last change.
func place(root, path string) (real string, changed unix.Timespec, err error) {
	fd, err := resolve(root, path)
	if err != nil {
		return "", changed, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", changed, err
	}
	real, err = os.Readlink(fmt.Sprintf("/proc/thread-self/fd/%d", fd))
	if err != nil {
		return "", changed, err
	}
	return filepath.Join("/", strings.TrimPrefix(real, root)), st.Mtim, nil
}

// Clean removes the mount points that are still empty, restores the times of their directories, and gives the layers
// back to their users. Call it when no process of the step is left. A nil Stubs does nothing.
func (s *Stubs) Clean() error {
	if s == nil {
		return nil
	}
	var errs error
	for i, upper := range s.uppers {
		if i == 0 {
			errs = errors.Join(errs, s.removeMissing(upper))
		}
		errs = errors.Join(errs, shift(upper, s.first, 0))
	}
	return errs
}

// removeMissing removes the mount points from a layer.
func (s *Stubs) removeMissing(upper string) error {
	top, err := unix.Open(upper, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	var errs error
	for _, path := range s.missing {
		errs = errors.Join(errs, removeStub(top, path))
	}
	for dir, changed := range s.times {
		if fd, err := openInLayer(top, dir); err == nil {
			keep := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, changed}
			errs = errors.Join(errs, unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), keep, 0))
			unix.Close(fd)
		}
	}
	return errs
}

// shift moves the owners of all files below dir from one range of users to another. A file with another owner stays as
// it is, so a shift may be done twice, as with links to one file. No process may change the files meanwhile.
func shift(dir string, from, to int) error {
	inRange := func(id uint32) bool { return int(id) >= from && int(id) < from+diskpool.IDRange }
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if err != nil {
			return err
		}
		uid, gid := -1, -1
		if inRange(st.Uid) {
			uid = int(st.Uid) - from + to
		}
		if inRange(st.Gid) {
			gid = int(st.Gid) - from + to
		}
		if uid < 0 && gid < 0 {
			return nil
		}
		if err := unix.Lchown(path, uid, gid); err != nil {
			return err
		}
		if special := st.Mode & (unix.S_ISUID | unix.S_ISGID); special != 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return unix.Chmod(path, st.Mode&0o7777) // the kernel clears these bits with the owner
		}
		return nil
	})
}

// removeStub removes one mount point if it is empty. What the step has put there or made of it stays.
func removeStub(top int, path string) error {
	dir, err := openInLayer(top, filepath.Dir(path))
	if err != nil {
		return nil // the step has removed or replaced it
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	name := filepath.Base(path)
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil
	}
	flags := 0
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		flags = unix.AT_REMOVEDIR
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > 0:
		return nil
	}
	if err := unix.Unlinkat(dir, name, flags); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// openInLayer opens a directory of a layer, whose content may be hostile: no link is followed.
func openInLayer(top int, path string) (int, error) {
	return unix.Openat2(top, strings.TrimLeft(path+"/.", "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
}

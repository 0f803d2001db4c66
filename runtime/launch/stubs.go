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
)

// Stubs are what the sandbox of a step leaves in its writable layer: mount points that the runtime makes because the
// image lacks them. They do not belong to the image.
type Stubs struct {
	upper   string                   // the writable layer of the root; "" if there is none
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

// Clean removes the mount points that are still empty, and restores the times of their directories. Call it when no
// process of the step is left. A nil Stubs does nothing.
func (s *Stubs) Clean() error {
	if s == nil || s.upper == "" {
		return nil
	}
	return s.removeMissing(s.upper)
}

// removeMissing removes the mount points from a layer.
func (s *Stubs) removeMissing(upper string) error {
	top, err := unix.Open(upper, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the builder drops the layer of a cancelled step at once
	}
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

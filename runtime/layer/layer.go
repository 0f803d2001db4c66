// Package layer knows what is in the directory of a writable layer. A layer is all that a container has written
// outside its workspace and its file systems in memory. It outlives sandboxes: the next one continues with it.
//
// On disk, files keep the owners that they have inside the container, and launch mounts them mapped to the sandbox's
// host users. So any sandbox can use any layer, and a copy of one. Package diskpool makes, keeps and removes the
// directories; package launch mounts them. Only the functions here look into them. No sandbox runs over a layer
// meanwhile. What was in a container chose what is in its layer, so no link of it is followed.
package layer

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/runtime/removetree"
)

// Directories of a layer. Nothing inside a container can reach any but the first, and the content of the third.
const (
	Upper = "upper" // the upper directory of the overlay: "/" inside
	Work  = "work"  // the overlay's work directory
	Run   = "run"   // the container's /.berth/run
	Hosts = "hosts" // in Run, the file to mount at /etc/hosts; in a kept layer, beside Run
)

// Paths inside a sandbox.
const (
	InsideGuest     = "/.berth/guest"
	InsideRun       = "/.berth/run"
	InsideWorkspace = "/workspace"
	InsideHosts     = "/etc/hosts"
	InsideCapacity  = "/.berth/capacity" // see runtime/inside
)

// mountPoints are the directories that hide what an image has there: a link of the image at /workspace or /proc leads
// nowhere, and a file there causes no failure. A parent comes before its children.
var mountPoints = []string{"/.berth", InsideRun, InsideWorkspace, "/proc", "/sys", "/dev"}

// temporary is a directory that every container has, whatever its image has there. It is part of the layer.
const temporary = "/tmp"

// Provided lists the paths that a sandbox mounts something at, whatever an image or a layer has there.
func Provided() []string { return append([]string{InsideHosts}, mountPoints...) }

const dirMode = 0o755

// Make fills the empty directory dir, and prepares it; see Prepare.
func Make(dir string, base uint32) error {
	upper := filepath.Join(dir, Upper)
	if err := os.Mkdir(upper, dirMode); err != nil {
		return err
	}
	if err := os.Chmod(upper, dirMode); err != nil { // whatever the umask
		return err
	}
	// The mount point of Hosts is above the image's directory, whose other files stay visible.
	hosts := filepath.Join(upper, InsideHosts)
	if err := errors.Join(os.Mkdir(filepath.Dir(hosts), dirMode), os.WriteFile(hosts, nil, 0o644),
		os.Chmod(filepath.Dir(hosts), dirMode), os.Chmod(hosts, 0o644)); err != nil {
		return err
	}
	return Prepare(dir, base)
}

// Prepare readies the layer in dir for a sandbox whose root is host user base: for a new overlay, a new guest, and the
// mounts of the sandbox. Each time it makes what a sandbox must find, whatever the one before has left.
func Prepare(dir string, base uint32) error {
	if err := Clear(dir); err != nil {
		return err
	}
	// A volatile overlay refuses a work directory that another mount has used.
	if err := os.Mkdir(filepath.Join(dir, Work), dirMode); err != nil {
		return err
	}
	run := filepath.Join(dir, Run)
	// Inside, only the sandbox's own root can enter it: other users must not reach the guest's socket. It is mounted
	// without a mapping.
	if err := errors.Join(os.Mkdir(run, 0o700), os.Chown(run, int(base), int(base))); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(dir, Upper))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, path := range mountPoints {
		if err := ensure(root, path, fs.FileMode.IsDir, func(name string) error {
			return errors.Join(root.Mkdir(name, dirMode), root.Chmod(name, dirMode))
		}); err != nil {
			return err
		}
	}
	for _, path := range []string{InsideGuest, InsideCapacity} {
		if err := ensure(root, path, fs.FileMode.IsRegular, func(name string) error {
			return root.WriteFile(name, nil, dirMode)
		}); err != nil {
			return err
		}
	}
	if err := ensure(root, temporary, fs.FileMode.IsDir, func(name string) error {
		return errors.Join(root.Mkdir(name, dirMode), root.Chmod(name, fs.ModeSticky|0o777))
	}); err != nil {
		return err
	}
	// The last step: from here on, Base knows whose the layer is.
	return os.Chown(dir, int(base), int(base))
}

// ensure replaces what is at path, unless it is of the right kind, by what makes makes.
func ensure(root *os.Root, path string, right func(fs.FileMode) bool, makes func(name string) error) error {
	name := strings.TrimPrefix(path, "/")
	info, err := root.Lstat(name)
	switch {
	case err == nil && right(info.Mode()):
		return nil
	case err == nil: // root inside can move a mount point's parent away
		err = root.RemoveAll(name)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return err
	}
	return makes(name)
}

// Clear removes what only one sandbox could use of the layer in dir. It keeps the file of host names.
func Clear(dir string) error {
	if info, err := os.Lstat(filepath.Join(dir, Run, Hosts)); err == nil && info.Mode().IsRegular() {
		if err := os.Rename(filepath.Join(dir, Run, Hosts), filepath.Join(dir, Hosts)); err != nil {
			return err
		}
	}
	return errors.Join(removetree.All(filepath.Join(dir, Work)), removetree.All(filepath.Join(dir, Run)))
}

// Base returns the host user that was root in the last sandbox of the layer in dir, or 0 if there was none.
func Base(dir string) uint32 {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil {
		return 0
	}
	return st.Uid
}

// madeAttribute holds the fingerprint of a layer as it was made.
const madeAttribute = "trusted.berth.made"

// mostMade is how many files a layer may have to count as untouched. The guest adds its user to an image that has none.
const mostMade = 64

var errMany = errors.New("too many files")

// Mark records that all of the layer in dir was made for its first sandbox, and nothing by a user. The guest runs and
// no command has run yet.
func Mark(dir string) error {
	made, err := fingerprint(dir)
	if err == nil {
		err = unix.Lsetxattr(dir, madeAttribute, made, 0)
	}
	if err != nil && !errors.Is(err, errMany) { // that one is kept, whatever happens to it
		return fmt.Errorf("marking a new layer: %w", err)
	}
	return nil
}

// Untouched reports whether the layer in dir is as it was when it was marked.
func Untouched(dir string) bool {
	made := make([]byte, sha256.Size)
	if _, err := unix.Lgetxattr(dir, madeAttribute, made); err != nil {
		return false
	}
	is, err := fingerprint(dir)
	return err == nil && bytes.Equal(is, made)
}

// fingerprint returns a hash of the names, owners, modes and times of all files in the layer, and of the file of host
// names. It fails with errMany for more than mostMade files.
func fingerprint(dir string) ([]byte, error) {
	h, n := sha256.New(), 0
	add := func(path string, _ fs.DirEntry, err error) error {
		if n++; err != nil || n > mostMade {
			return cmp.Or(err, errMany)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %o %d %d %d %d %d %d\n", path[len(dir):], st.Mode, st.Uid, st.Gid, st.Rdev, st.Size,
			st.Ctim.Sec, st.Ctim.Nsec)
		return nil
	}
	err := filepath.WalkDir(filepath.Join(dir, Upper), add)
	if err == nil {
		err = add(filepath.Join(dir, Run, Hosts), nil, nil)
	}
	return h.Sum(nil), err
}

package fs

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// WorkingDir checks a working directory, and makes it if it is missing and in the workspace.
func (s *FS) WorkingDir(id user.User, dir string) (string, error) {
	path := s.Absolute(dir)
	if dir == "" {
		path = string(s.Workspace)
	}
	err := id.Do(func() error { return canEnter(path) })
	if errors.Is(err, unix.ENOENT) && s.Has(path) {
		if err = s.makeShared(id, path); err == nil {
			err = id.Do(func() error { return canEnter(path) })
		}
	}
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, unix.EACCES):
		return "", proto.Errorf(proto.PermissionDenied, "exec", path, "user %s may not use %s as working directory",
			id.Name, path)
	case errors.Is(err, unix.ENOENT):
		return "", proto.Errorf(proto.InvalidArgument, "exec", path, "the working directory %s does not exist; only "+
			"those below %s are made", path, s.Workspace)
	case errors.Is(err, unix.ENOTDIR):
		return "", proto.Errorf(proto.InvalidArgument, "exec", path, "the working directory %s is not a directory",
			path)
	}
	return "", wire.FileError("exec", path, err)
}

// canEnter returns the error that chdir to dir would return. It looks up a name after the slash, which requires a
// directory with search permission.
func canEnter(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir+"/.", unix.X_OK, unix.AT_EACCESS)
}

// makeShared makes a directory of the workspace for commands of every user. The directory belongs to the ordinary
// user even if another one uses it first, wherever the ordinary user may make it. Where only root may make it, no link
// is followed.
func (s *FS) makeShared(id user.User, path string) error {
	user := id
	if !id.Same(s.users.Default) {
		user = s.users.Default
	}
	err := user.Do(func() error { return os.MkdirAll(path, 0o755) })
	switch {
	case !errors.Is(err, unix.EACCES):
	case id.IsRoot():
		err = id.Do(func() error { return s.MakeDir(path) })
	case !id.Same(user):
		err = id.Do(func() error { return os.MkdirAll(path, 0o755) })
	}
	return err
}

// maker returns the user that makes and removes directories for id: the ordinary user's own, and root without
// following links for all others, who may not write in the directories above.
func (s *FS) maker(id user.User) user.User {
	if id.IsRoot() || id.Same(s.users.Default) {
		return id
	}
	return s.users.Root
}

// give makes id the owner of a directory that root has just made without following links. The ordinary user may have
// put another directory of root into its place: only an empty one is given away.
func (s *FS) give(id user.User, path string) error {
	at, name, err := s.OpenParent(path)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	d, err := access.OpenDir(at, name, false)
	if err != nil {
		return err
	}
	defer d.Close()
	if names, _ := d.Readdirnames(1); len(names) > 0 {
		return unix.ENOTEMPTY
	}
	return d.Chown(id.UID, id.GID)
}

// FreshDir removes what is at path and makes an empty directory there that belongs to id. The ordinary user may have
// replaced a directory by a link. FreshDir follows that link for the ordinary user, but for nobody else.
func (s *FS) FreshDir(id user.User, path string) error {
	by := s.maker(id)
	err := s.freshDir(by, path)
	if err == nil && !by.Same(id) {
		err = wire.FileError("exec", path, s.give(id, path))
	}
	return err
}

func (s *FS) freshDir(id user.User, path string) error {
	if s.marks.making(path, func() error { return id.Do(func() error { return s.newDir(id, path) }) }) == nil {
		return nil // the usual case: the parent exists and has no such entry
	}
	if parent := filepath.Dir(path); s.Has(parent) {
		if err := s.makeShared(id, parent); err != nil {
			return wire.FileError("exec", parent, err)
		}
	}
	err := id.Do(func() error {
		if id.IsRoot() {
			return s.freshNoLinks(path)
		}
		if err := removeTree(path); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return os.MkdirAll(path, 0o755)
	})
	return wire.FileError("exec", path, err)
}

// freshNoLinks removes what is at path without following links, and makes an empty directory there.
func (s *FS) freshNoLinks(path string) error {
	at, name, err := s.OpenParent(path)
	if err == nil {
		err = (&remover{}).remove(at, name)
		_ = unix.Close(at)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return s.MakeDir(path)
}

// newDir makes a directory in an existing one.
func (s *FS) newDir(id user.User, path string) error {
	if !id.IsRoot() {
		return unix.Mkdir(path, 0o755)
	}
	at, name, err := s.OpenParent(path)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.Mkdirat(at, name, 0o755)
}

// A fingerprint of a job's directory at a command's end nearly always saves the daemon a walk: most commands change
// no file. The fingerprint must be very cheap, so the daemon walks directories above these limits.
const (
	fingerprintFiles   = 100 // all but directories
	fingerprintEntries = 400 // all entries of the directories
)

// A State is what Fingerprint finds.
type State struct {
	Fingerprint string // of the directory's content; "" if it would take long or cannot be computed
	Pruned      bool   // the directory to prune was empty and is removed
	Left        string // the directory to prune, if the caller has to remove it
}

// Fingerprint returns the state of the directory dir. On the way it removes the directory prune if it is empty.
func (s *FS) Fingerprint(dir, prune string) State {
	if seen, large := s.marks.seen(dir, s.mappings); seen != "" || large {
		return State{Fingerprint: seen, Left: prune}
	}
	w := &walker{most: fingerprintFiles, left: fingerprintEntries, others: true, prune: prune}
	err := s.users.Root.Do(func() error { return w.from(s, dir) })
	st := State{Left: w.prune, Pruned: w.pruned}
	if err == nil && !w.truncated {
		st.Fingerprint = proto.Fingerprint(dir, w.sorted())
	}
	return st
}

// RemoveEmptyDir removes a directory if it is empty, under the rules of FreshDir. It reports whether it did.
func (s *FS) RemoveEmptyDir(id user.User, path string) bool {
	id = s.maker(id)
	return id.Do(func() error {
		if !id.IsRoot() {
			return unix.Rmdir(path)
		}
		at, name, err := s.OpenParent(path)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	}) == nil
}

package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// Default limits of an unpacked archive.
const (
	// The disk pool has at most 64 GiB by default, so a container's own limit applies first.
	defaultUntarBytes = 64 << 30
	// Empty files cost no bytes, but each costs an inode and time.
	defaultUntarFiles = 1_000_000
)

// An Unpacker unpacks one archive below a directory and cannot leave it.
type Unpacker struct {
	id     user.User
	root   *tree
	limits wire.UntarLimits
	bytes  int64
	files  int    // unpacked members
	member string // the current member
	dirs   []*tar.Header
}

// NewUnpacker makes the directory if it is missing, and opens it. The caller closes the Unpacker. Limits of 0 or less
// are the defaults.
func NewUnpacker(id user.User, dir string, limits wire.UntarLimits) (*Unpacker, error) {
	if limits.Bytes <= 0 {
		limits.Bytes = defaultUntarBytes
	}
	if limits.Files <= 0 {
		limits.Files = defaultUntarFiles
	}
	u := &Unpacker{id: id, limits: limits}
	err := id.Do(func() (err error) {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			u.root, err = openTree(dir)
		}
		return err
	})
	return u, err
}

// Close closes the directory.
func (u *Unpacker) Close() { u.root.close() }

// Unpack unpacks the archive that r reads, in one go on one thread: members arrive too fast to switch credentials for
// each. Its error names the member that was refused. What was unpacked before stays.
func (u *Unpacker) Unpack(r io.Reader) error {
	if err := u.id.Do(func() error { return u.unpack(r) }); err != nil {
		return u.explain(err)
	}
	return nil
}

// unpack reads the archive to its end. It checks the member limit before it unpacks a member, so that the number in
// the error is correct.
func (u *Unpacker) unpack(r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return u.dates()
		}
		if err != nil {
			return err
		}
		// Kept for the error, which comes from code that does not know the name.
		u.member = h.Name
		if u.files >= u.limits.Files {
			return proto.Errorf(proto.TooLarge, wire.OpUntar, u.member, "the archive has more than %d members",
				u.limits.Files)
		}
		if err := u.one(h, tr); err != nil {
			return err
		}
		u.files++
	}
}

// one unpacks one member. It checks names as text, and it takes every step to a member through the tree, which
// follows no link out. Each check alone has been bypassed in other programs.
func (u *Unpacker) one(h *tar.Header, r io.Reader) error {
	name, err := memberName(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		at, _, err := u.root.parent(name+"/.", true)
		if err != nil {
			return err
		}
		// Its mode is set at the end, because a read-only directory could not be filled.
		u.dirs = append(u.dirs, h)
		return unix.Close(at)
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
		at, real, err := u.root.parent(name, true)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		return u.place(at, real, h, r)
	case tar.TypeXGlobalHeader:
		return nil
	}
	// Devices would be the host's, and a FIFO blocks its reader.
	return refuse(h.Name, "is a device, FIFO or other special file, which are not unpacked")
}

// refuse returns the error for a member that is not unpacked. An attacker may choose the name, and the name goes into
// logs and terminals. So refuse makes it printable and cuts it.
func refuse(member, why string) error {
	member = wire.CleanText(strings.ToValidUTF8(member, "\uFFFD"), 1024)
	return proto.Errorf(proto.InvalidArgument, wire.OpUntar, member, "member %q %s", member, why)
}

// memberName checks and cleans the name of a member.
func memberName(name string) (string, error) {
	switch {
	case name == "" || strings.IndexByte(name, 0) >= 0:
		return "", refuse(name, "has no valid name")
	case path.IsAbs(name):
		return "", refuse(name, "has an absolute name")
	}
	// ".." is refused even if the name stays inside, since the meaning of "a/.." depends on whether a is a link.
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refuse(name, `has ".." in its name`)
		}
	}
	return path.Clean(name), nil
}

// place unpacks a member that is not a directory as an entry of a directory. name has no links, so that it shows how
// deep the entry is.
func (u *Unpacker) place(at int, name string, h *tar.Header, r io.Reader) error {
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeSymlink:
		return u.symlink(at, name, h)
	case tar.TypeLink:
		return u.hardlink(at, base, h)
	}
	return u.file(at, base, h, r)
}

// makeRoom removes what has the name of a new link or hard link, unless it is a directory. A directory stays: its
// removal would take all its content, which no archive member should be able to do.
func makeRoom(at int, base, member string) error {
	var st unix.Stat_t
	err := unix.Fstatat(at, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case access.IsMissing(err):
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return refuse(member, "would replace a directory")
	}
	return unix.Unlinkat(at, base, 0)
}

// file unpacks a regular file. The file gets its name only when it is complete.
func (u *Unpacker) file(at int, base string, h *tar.Header, r io.Reader) error {
	// The difference cannot overflow. The sum could, with a size of nearly 2^63.
	if h.Size > u.limits.Bytes-u.bytes {
		return proto.Errorf(proto.TooLarge, wire.OpUntar, h.Name, "the archive unpacks to more than %d bytes",
			u.limits.Bytes)
	}
	u.bytes += h.Size
	temp := access.TempName()
	// With O_EXCL the kernel does not follow a link of that name.
	fd, err := unix.Openat(at, temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	_, err = io.Copy(f, r)
	if err == nil {
		// Without the set-user-ID, set-group-ID and sticky bits: an archive must not grant privileges.
		err = unix.Fchmod(fd, uint32(h.Mode&0o777))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = makeRoom(at, base, h.Name)
	}
	if err == nil {
		err = unix.Renameat(at, temp, at, base)
	}
	if err != nil {
		_ = unix.Unlinkat(at, temp, 0)
		return err
	}
	return setTime(at, base, h)
}

// setTime gives an entry the time from the archive. For a link it sets the link's own time, not the target's.
func setTime(at int, base string, h *tar.Header) error {
	ts := unix.NsecToTimespec(h.ModTime.UnixNano())
	return unix.UtimesNanoAt(at, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

// symlink unpacks a link that stays inside. It refuses a link that leads out, because a later member or a command
// would follow it.
func (u *Unpacker) symlink(at int, name string, h *tar.Header) error {
	if !proto.LinkStaysInside(name, h.Linkname) {
		return refuse(h.Name, "is a link that leads out of the directory")
	}
	if err := makeRoom(at, path.Base(name), h.Name); err != nil {
		return err
	}
	return unix.Symlinkat(h.Linkname, at, path.Base(name))
}

// hardlink unpacks another name of an earlier member. It links only to a regular file inside: with a hard link to
// anything else, a write to one name would change the other.
func (u *Unpacker) hardlink(at int, base string, h *tar.Header) error {
	old, err := memberName(h.Linkname)
	if err != nil {
		return refuse(h.Name, "is a link that leads out of the directory")
	}
	from, real, err := u.root.parent(old, false)
	name := path.Base(real)
	if err == nil {
		defer unix.Close(from)
		var st unix.Stat_t
		if err = unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil &&
			st.Mode&unix.S_IFMT != unix.S_IFREG {
			err = unix.ENOENT
		}
	}
	if err != nil {
		return refuse(h.Name, "is a hard link to something that the archive does not hold")
	}
	if sameEntry(from, name, at, base) { // tar writes this for a file that was given twice
		return nil
	}
	if err := makeRoom(at, base, h.Name); err != nil {
		return err
	}
	return unix.Linkat(from, name, at, base, 0)
}

// sameEntry reports whether two names already refer to the same file.
func sameEntry(from int, name string, at int, base string) bool {
	var a, b unix.Stat_t
	return unix.Fstatat(from, name, &a, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstatat(at, base, &b, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		a.Dev == b.Dev && a.Ino == b.Ino
}

// dates sets the modes and times of directories, which unpacking into them changed. It goes from the last to the
// first, so that it sets a directory's time after its content's.
func (u *Unpacker) dates() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if err := u.date(u.dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// date opens the directory again by name, because one descriptor per directory would use up the descriptors.
func (u *Unpacker) date(h *tar.Header) error {
	name, err := memberName(h.Name)
	if err != nil {
		return err
	}
	at, _, err := u.root.parent(name+"/.", false)
	if err != nil {
		return nil // a later member replaced it and has its own mode and time
	}
	defer unix.Close(at)
	if err := unix.Fchmodat(at, ".", uint32(h.Mode&0o777), 0); err != nil {
		return err
	}
	return setTime(at, ".", h)
}

// explain adds to an error the member's name and the number of members unpacked before. What was unpacked before
// stays, so the count tells a caller how far it came.
func (u *Unpacker) explain(err error) error {
	member := wire.CleanText(strings.ToValidUTF8(u.member, "\uFFFD"), 1024)
	var e *proto.Error
	if !errors.As(err, &e) {
		switch {
		case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF):
			e = proto.Errorf(proto.InvalidArgument, wire.OpUntar, member,
				"the archive is damaged or cut off after member %q", member)
		case errors.Is(err, errOutside):
			errors.As(refuse(u.member, "leads out of the directory through a link"), &e)
		default:
			errors.As(wire.FileError(wire.OpUntar, member, err), &e)
		}
	}
	counted := *e
	counted.Message += fmt.Sprintf("; %d members before it were unpacked", u.files)
	return &counted
}

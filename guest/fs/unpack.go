package fs

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// What an archive unpacks to at most, where the caller sets no limit.
const (
	// The disk pool has at most 64 GiB by default, so that a container's own limit ends it first.
	defaultUntarBytes = 64 << 30
	// Empty files cost no bytes, but an inode and time each.
	defaultUntarFiles = 1_000_000
)

// untar receives an archive.
// The reply before the body tells the client to go on: a directory that cannot be made is told before
// anything is sent.
func (k *handler) untar(id user.User, req *wire.Request, dir string) error {
	u := &unpacker{limits: req.Untar}
	if u.limits.Bytes <= 0 {
		u.limits.Bytes = defaultUntarBytes
	}
	if u.limits.Files <= 0 {
		u.limits.Files = defaultUntarFiles
	}
	err := id.Do(func() (err error) {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			u.root, err = openTree(dir)
		}
		return err
	})
	if err != nil {
		return k.conn.SendReply(nil, wire.FileError(wire.OpUntar, dir, err))
	}
	defer u.root.close()
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		return err
	}
	b := &body{conn: k.conn}
	// All in one go on one thread: the members come too fast to change credentials for each.
	if err := id.Do(func() error { return u.unpack(b) }); err != nil {
		return b.fail(k, u.explain(err))
	}
	// A tar ends with zeros up to the block size of who wrote it, often 10 KiB; unread, they would be
	// taken for the next request.
	for b.err == nil { // padding after the end of the archive
		b.rest = nil
		b.fill()
	}
	if b.err != io.EOF {
		return b.err
	}
	return k.conn.SendReply(nil, nil)
}

// An unpacker unpacks an archive below root, which it cannot leave.
type unpacker struct {
	root   *tree
	limits wire.UntarLimits
	bytes  int64
	files  int    // members that are unpacked
	member string // the one at hand
	dirs   []*tar.Header
}

// unpack reads the archive to its end.
// The limit of members is checked before one is unpacked, so that the number in the error is true.
func (u *unpacker) unpack(r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return u.dates()
		}
		if err != nil {
			return err
		}
		// It is kept for the error, which comes from deep below where no name is known.
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

// one unpacks one member.
// Names are checked as text, and every step to a member goes through the tree, which follows no link out
// of it: each alone has been fooled in other programs.
func (u *unpacker) one(h *tar.Header, r io.Reader) error {
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
		// Its mode comes at the end: a directory that may not be written to could not be filled.
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
	// Devices would be the host's, and a FIFO hangs whoever reads it.
	return refuse(h.Name, "is a device, FIFO or other special file, which are not unpacked")
}

// refuse says why a member is not unpacked.
// The name is an attacker's text, and goes into logs and terminals: it is made printable and cut.
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
	// A climb is refused even where it ends inside, since what "a/.." means depends on whether a is a
	// link.
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refuse(name, `has ".." in its name`)
		}
	}
	return path.Clean(name), nil
}

// place unpacks what is no directory as an entry of one. The name is without links, so that it tells how deep the
// entry is.
func (u *unpacker) place(at int, name string, h *tar.Header, r io.Reader) error {
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeSymlink:
		return u.symlink(at, name, h)
	case tar.TypeLink:
		return u.hardlink(at, base, h)
	}
	return u.file(at, base, h, r)
}

// makeRoom removes what stands in the place of a new link or hard link, and sees that it is no directory. Those stay.
// A directory stays, because removing it would take all that it holds, which no member of an archive
// should be able to do.
func makeRoom(at int, base, member string) error {
	var st unix.Stat_t
	err := unix.Fstatat(at, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case isMissing(err):
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return refuse(member, "would replace a directory")
	}
	return unix.Unlinkat(at, base, 0)
}

// file unpacks a regular file. It takes its name only when it is whole.
func (u *unpacker) file(at int, base string, h *tar.Header, r io.Reader) error {
	// The difference cannot overflow, as the sum could with a size of nearly 2^63.
	if h.Size > u.limits.Bytes-u.bytes {
		return proto.Errorf(proto.TooLarge, wire.OpUntar, h.Name, "the archive unpacks to more than %d bytes",
			u.limits.Bytes)
	}
	u.bytes += h.Size
	temp := tempName()
	// With O_EXCL a link that stands under that name is not followed.
	fd, err := unix.Openat(at, temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	_, err = io.Copy(f, r)
	if err == nil {
		// Without the bits for set-user-ID, set-group-ID and sticky: an archive must not hand out rights.
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

// setTime gives an entry the time that the archive has for it.
// The time of a link is its own, not that of what it leads to.
func setTime(at int, base string, h *tar.Header) error {
	ts := unix.NsecToTimespec(h.ModTime.UnixNano())
	return unix.UtimesNanoAt(at, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

// symlink unpacks a link that stays inside.
// A link out is refused although nothing follows it now: a later member, or a command, would.
func (u *unpacker) symlink(at int, name string, h *tar.Header) error {
	if path.IsAbs(h.Linkname) || upAgain(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname)) {
		return refuse(h.Name, "is a link that leads out of the directory")
	}
	if err := makeRoom(at, path.Base(name), h.Name); err != nil {
		return err
	}
	return unix.Symlinkat(h.Linkname, at, path.Base(name))
}

// upAgain reports whether a path goes down and then up: where that leads depends on what is a link down there.
func upAgain(to string) bool {
	down := false
	for part := range strings.SplitSeq(to, "/") {
		if part == ".." && down {
			return true
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return false
}

// hardlink unpacks another name of a member that came before.
// Only a regular file inside may be linked to: with a hard link to anything else, writing to one name
// would change the other.
func (u *unpacker) hardlink(at int, base string, h *tar.Header) error {
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
	if sameEntry(from, name, at, base) { // as tar has it of a file with two names that it was given twice
		return nil
	}
	if err := makeRoom(at, base, h.Name); err != nil {
		return err
	}
	return unix.Linkat(from, name, at, base, 0)
}

// sameEntry reports whether two names are of one file already.
func sameEntry(from int, name string, at int, base string) bool {
	var a, b unix.Stat_t
	return unix.Fstatat(from, name, &a, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstatat(at, base, &b, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		a.Dev == b.Dev && a.Ino == b.Ino
}

// dates gives directories their modes and times, which unpacking into them changed.
// From the last to the first, so that setting a directory's time comes after that of what is in it.
func (u *unpacker) dates() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if err := u.date(u.dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// date finds the directory anew by its name, since keeping a descriptor for each would use them up.
func (u *unpacker) date(h *tar.Header) error {
	name, err := memberName(h.Name)
	if err != nil {
		return err
	}
	at, _, err := u.root.parent(name+"/.", false)
	if err != nil {
		return nil // it was replaced by a later member, and is that one's affair
	}
	defer unix.Close(at)
	if err := unix.Fchmodat(at, ".", uint32(h.Mode&0o777), 0); err != nil {
		return err
	}
	return setTime(at, ".", h)
}

// explain adds to an error which member it is about and what was done before it.
// The count tells a caller how far it came: what was unpacked before stays.
func (u *unpacker) explain(err error) error {
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
	told := *e
	told.Message += fmt.Sprintf("; %d members before it were unpacked", u.files)
	return &told
}

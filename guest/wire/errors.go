package wire

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// CleanText cuts s to max bytes and removes control characters other than newlines and tabs.
func CleanText(s string, max int) string {
	if len(s) > max {
		s = s[:max]
		for len(s) > 0 && !utf8.ValidString(s[len(s)-min(len(s), 4):]) {
			s = s[:len(s)-1]
		}
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// PeerGone reports whether err means that the other side has closed the connection.
func PeerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// errnoRow describes how one system error is reported.
type errnoRow struct {
	errno   syscall.Errno
	code    proto.Code
	message string
}

// errnoTable maps system errors on files to codes and messages. The message follows the path.
var errnoTable = []errnoRow{
	{unix.ENOENT, proto.NotFound, "does not exist"},
	{unix.EACCES, proto.PermissionDenied, "permission denied"},
	{unix.EPERM, proto.PermissionDenied, "operation not permitted"},
	{unix.EROFS, proto.PermissionDenied, "is on a read-only file system"},
	{unix.EEXIST, proto.AlreadyExists, "exists already"},
	{unix.ENOTEMPTY, proto.Conflict, "is a directory that is not empty; ask for recursive removal"},
	{unix.EISDIR, proto.InvalidArgument, "is a directory"},
	{unix.ENOTDIR, proto.InvalidArgument, "has a part that is not a directory"},
	{unix.ELOOP, proto.InvalidArgument, "has too many symbolic links, or one where none may be"},
	{unix.ENAMETOOLONG, proto.InvalidArgument, "is too long a name"},
	{unix.EINVAL, proto.InvalidArgument, "is not a valid name for this"},
	{unix.EXDEV, proto.InvalidArgument, "is on another file system than its target; copy and remove it instead"},
	{unix.ENXIO, proto.InvalidArgument, "is not a regular file"},
	{unix.ENODEV, proto.InvalidArgument, "is not a regular file"},
	{unix.EIO, proto.InvalidArgument, "cannot be read or written"},
	{unix.ESRCH, proto.NotFound, "is of a process that has ended"},
	{unix.EBUSY, proto.Conflict, "is in use, or a mount point"},
	{unix.ETXTBSY, proto.Conflict, "is a program that is running"},
	{unix.ENOSPC, proto.QuotaExceeded, "no space is left; remove something first"},
	{unix.EDQUOT, proto.QuotaExceeded, "the disk limit is reached; remove something first"},
	{unix.EFBIG, proto.TooLarge, "is larger than files may be"},
	{unix.EMFILE, proto.TooMany, "too many files are open in the container"},
	{unix.ENFILE, proto.TooMany, "too many files are open"},
	{unix.EAGAIN, proto.TooMany, "the container's limit of processes is reached"},
	{unix.ENOMEM, proto.TooMany, "the container's memory limit is reached"},
}

// FileError reports err about path as a proto.Error. It returns nil for a nil err.
func FileError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var e *proto.Error
	if errors.As(err, &e) {
		return e
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		for _, row := range errnoTable {
			if row.errno == no {
				return proto.Errorf(row.code, op, path, "%s: %s", path, row.message)
			}
		}
		// Code in the container can cause every errno. No errno is an internal error of the daemon.
		return proto.Errorf(proto.Unsupported, op, path, "%s: the container's kernel says: %s", path, no.Error())
	}
	if errors.Is(err, fs.ErrInvalid) {
		return proto.Errorf(proto.InvalidArgument, op, path, "%s is not a valid name for this", path)
	}
	return proto.Errorf(proto.Internal, op, path, "%s: cannot %s it", path, op)
}

func CommandEnded() error {
	return proto.Errorf(proto.Conflict, "exec", "", "the command has ended already")
}

func FileShrunk(path string) error {
	return proto.Errorf(proto.Conflict, OpRead, path, "%s became shorter while it was read; read it again", path)
}

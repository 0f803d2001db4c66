package access

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// Info converts the lstat result of path.
func Info(path string, st *unix.Stat_t) proto.FileInfo {
	fi := proto.FileInfo{
		Path: path, Type: typeOf(st.Mode), SizeBytes: st.Size, Mode: fmt.Sprintf("%04o", st.Mode&0o7777),
		UID: st.Uid, GID: st.Gid,
		ModifiedAt: proto.At(time.Unix(st.Mtim.Unix())), ChangedAt: proto.At(time.Unix(st.Ctim.Unix())),
	}
	if !utf8.ValidString(path) {
		fi.RawPath = []byte(path)
		fi.Path = strings.ToValidUTF8(path, "\uFFFD")
	}
	return fi
}

// typeOf translates the type bits of a mode.
func typeOf(mode uint32) proto.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return proto.TypeFile
	case unix.S_IFDIR:
		return proto.TypeDirectory
	case unix.S_IFLNK:
		return proto.TypeSymlink
	}
	return proto.TypeOther
}

// InfoAt describes the entry name of the open directory dir, whose path is given.
func InfoAt(dir int, name, path string) (proto.FileInfo, error) {
	fi, _, err := InfoLinks(dir, name, path)
	return fi, err
}

// InfoLinks is InfoAt that also returns how many names the file has.
func InfoLinks(dir int, name, path string) (fi proto.FileInfo, links uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fi, 0, err
	}
	fi = Info(path, &st)
	if fi.Type == proto.TypeSymlink {
		to, _ := LinkAt(dir, name)
		fi.Target = strings.ToValidUTF8(to, "\uFFFD")
	}
	return fi, uint64(st.Nlink), nil
}

// LinkAt returns the target of a link as raw bytes, which need not be UTF-8.
func LinkAt(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	return string(buf[:max(n, 0)]), err
}

// IsMissing reports whether err says that a file is not there.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

package fs

import (
	"bufio"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// Bounds of the lists of users and groups, which code in the container may write.
const (
	maxAccounts = 1 << 20 // bytes that are read of a list
	maxName     = 256     // bytes of one name
)

// describe adds what lstat does not tell: the names of owner and group, and what links lead to. It acts as id.
func describe(id user.User, list []proto.FileInfo) {
	users, groups := accounts(id, "/etc/passwd"), accounts(id, "/etc/group")
	_ = id.Do(func() error {
		for i := range list {
			fi := &list[i]
			fi.Owner, fi.Group = users[fi.UID], groups[fi.GID]
			if fi.Type == proto.TypeSymlink {
				fi.TargetType = targetType(fi)
			}
		}
		return nil
	})
}

// targetType returns what a link leads to, or "" if that is nothing, or nothing that this user may reach.
func targetType(fi *proto.FileInfo) proto.FileType {
	path := fi.Path
	if fi.RawPath != nil {
		path = string(fi.RawPath)
	}
	var st unix.Stat_t
	if unix.Stat(filepath.Clean(path), &st) != nil {
		return ""
	}
	return access.Info(path, &st).Type
}

// accounts reads names by number from a list of users or groups. The first name of a number counts.
func accounts(id user.User, file string) map[uint32]string {
	f, _, err := access.OpenAs(id, file, unix.O_RDONLY) // a regular file: a FIFO would never end
	if err != nil {
		return nil
	}
	defer f.Close()
	names := map[uint32]string{}
	lines := bufio.NewScanner(io.LimitReader(f, maxAccounts))
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), ":", 4)
		if len(fields) < 4 {
			continue
		}
		n, err := strconv.ParseUint(fields[2], 10, 32)
		if _, known := names[uint32(n)]; err == nil && !known {
			names[uint32(n)] = wire.CleanText(strings.ToValidUTF8(fields[0], "\uFFFD"), maxName)
		}
	}
	return names
}

package user

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// Bounds of the lists of users and groups, which code in the container may write.
const (
	maxAccounts = 1 << 20 // bytes that are read of a list
	maxGroups   = 1024    // supplementary groups of a user
	maxKnown    = 20      // users and groups that an error names
	maxName     = 64      // bytes of a name in an error
	// highest UID and GID: a container has 65,536 of each. The kernel takes higher ones as invalid, and the highest
	// of all as "leave it unchanged"
	maxID = 1<<16 - 1
)

// Named returns the user that a caller names: "user" or "" for the ordinary user, "root" for root, or a user of the
// image as Docker's --user takes it: a name or UID, and a group or GID after a colon. The image's lists count as they
// are now. A UID needs no entry in the list. Without a group, the user has all its groups.
func (ids Users) Named(name string) (User, error) {
	switch name {
	case "", proto.UserDefault:
		who := ids.Default
		if ids.setGroups && ids.others {
			who.Groups = ids.own.groups(ids)
			who.groups = ids.dropGroups || len(who.Groups) > 0
		}
		return who, nil
	case proto.UserRoot:
		return ids.Root, nil
	}
	who, err := ids.inImage(name)
	if err != nil {
		return User{}, err
	}
	switch {
	case who.Same(ids.Default) && ids.Default.Self:
		return ids.Default, nil
	case !ids.others:
		return User{}, proto.Errorf(proto.Unsupported, "guest", name, "user %q: the guest of this container is not "+
			"root and can act only as %q", wire.CleanText(name, maxName), ids.Default.Name)
	case len(who.Groups) > 0 && !ids.setGroups:
		return User{}, proto.Errorf(proto.Unsupported, "guest", name, "user %q: this container does not let the "+
			"guest set supplementary groups", wire.CleanText(name, maxName))
	}
	who.groups = ids.setGroups && (ids.dropGroups || len(who.Groups) > 0)
	return who, nil
}

// inImage looks a user up as the ordinary user: code in the container may have made the lists links to files that only
// the guest may read.
func (ids Users) inImage(name string) (who User, err error) {
	err = ids.Default.Do(func() error {
		who, err = InImage(ids.root, name)
		return err
	})
	return who, err
}

// InImage returns the user of the image below root that a step of a Dockerfile names. "" is root.
func InImage(root, name string) (User, error) {
	who, err := find(name, accounts(root, "passwd"), accounts(root, "group"))
	who.groups = true
	return who, err
}

// OwnerOf returns the user that may see into a process: the kernel shows the environment of a process to its own user,
// and root of a container may lack the capability to read that of others. ok is false if the process is gone.
func (ids Users) OwnerOf(pid int) (owner User, ok bool) {
	var st unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(pid), &st) != nil {
		return User{}, false
	}
	if !ids.others || int(st.Uid) == ids.Default.UID && int(st.Gid) == ids.Default.GID {
		return ids.Default, true
	}
	return User{UID: int(st.Uid), GID: int(st.Gid)}, st.Uid <= maxID && st.Gid <= maxID
}

// find finds a user in the content of the two lists.
func find(name string, passwd, group []byte) (User, error) {
	found, err := user.GetExecUser(name, &user.ExecUser{Home: "/"}, bytes.NewReader(passwd), bytes.NewReader(group))
	switch {
	case errors.Is(err, user.ErrNoPasswdEntries):
		return User{}, unknown("user", name, passwd)
	case errors.Is(err, user.ErrNoGroupEntries):
		return User{}, unknown("group", name, group)
	case errors.Is(err, user.ErrRange):
		return User{}, outOfRange(name)
	case err != nil:
		return User{}, proto.Errorf(proto.InvalidArgument, "guest", name, "user %q: the image's /etc/passwd or "+
			"/etc/group cannot be read: %s", wire.CleanText(name, maxName), wire.CleanText(err.Error(), maxName))
	}
	for _, id := range append([]int{found.Uid, found.Gid}, found.Sgids...) {
		if id < 0 || id > maxID {
			return User{}, outOfRange(name)
		}
	}
	slices.Sort(found.Sgids)
	groups := slices.Compact(found.Sgids)
	if len(groups) > maxGroups {
		return User{}, proto.Errorf(proto.InvalidArgument, "guest", name, "user %q has %d groups; %d is the limit",
			wire.CleanText(name, maxName), len(groups), maxGroups)
	}
	who := User{UID: found.Uid, GID: found.Gid, Groups: groups, Home: found.Home, Name: strconv.Itoa(found.Uid)}
	own, _, _ := strings.Cut(name, ":")
	entry := func(u user.User) bool { return u.Uid == found.Uid && (u.Name == own || strconv.Itoa(u.Uid) == own) }
	if list, _ := user.ParsePasswdFilter(bytes.NewReader(passwd), entry); len(list) > 0 {
		who.Name, who.Shell = list[0].Name, list[0].Shell
	}
	if !filepath.IsAbs(who.Home) || strings.ContainsRune(who.Home, 0) {
		who.Home = "/"
	}
	if !filepath.IsAbs(who.Shell) || strings.ContainsRune(who.Shell, 0) {
		who.Shell = ""
	}
	return who, nil
}

func outOfRange(name string) error {
	return proto.Errorf(proto.InvalidArgument, "guest", name, "user %q: UIDs and GIDs of a container are from 0 to %d",
		wire.CleanText(name, maxName), maxID)
}

// unknown says which users or groups there are. list is the content of their list.
func unknown(kind, name string, list []byte) error {
	var known []string
	more := ""
	for line := range bytes.Lines(list) {
		one, _, entry := bytes.Cut(bytes.TrimSpace(line), []byte{':'})
		if !entry || !isAccountName(one) {
			continue
		}
		if len(known) == maxKnown {
			more = " and more"
			break
		}
		known = append(known, string(one))
	}
	own, group, _ := strings.Cut(name, ":")
	if kind == "group" {
		own = group
	}
	have := "lists none"
	if len(known) > 0 {
		have = "has " + strings.Join(known, ", ") + more
	}
	file := map[string]string{"user": "passwd", "group": "group"}[kind]
	return proto.Errorf(proto.InvalidArgument, "guest", name, "unknown %s %q; the container's /etc/%s %s; a number "+
		"needs no entry", kind, wire.CleanText(own, maxName), file, have)
}

// isAccountName reports whether an error may repeat a name of a list, in which anything may be.
func isAccountName(name []byte) bool {
	return len(name) > 0 && len(name) <= maxName && name[0] != '#' &&
		!bytes.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// accounts reads the list of users or groups, as far as the bound. A list that is missing or is no regular file, such
// as a FIFO, which would never end, is empty. Files of the kernel count as empty, because they have no size.
func accounts(root, list string) []byte {
	path := filepath.Join(root, "etc", list)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), list)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	b, _ := io.ReadAll(io.LimitReader(f, min(st.Size, maxAccounts)))
	if int64(len(b)) < st.Size {
		b = b[:bytes.LastIndexByte(b, '\n')+1] // no part of a line
	}
	return b
}

// ownGroups are the supplementary groups of the ordinary user. They are read again only when the list has changed,
// because most commands are the ordinary user's.
type ownGroups struct {
	mu    sync.Mutex
	known bool
	key   [4]int64 // of the list that was read
	list  []int
}

// groups returns the groups. A list that cannot be used gives none.
func (o *ownGroups) groups(ids Users) []int {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(ids.root, "etc", "group"), &st) != nil {
		return nil
	}
	key := [4]int64{int64(st.Ino), st.Size, st.Ctim.Nano(), st.Mtim.Nano()}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known && o.key == key {
		return o.list
	}
	o.known, o.key, o.list = true, key, nil
	if who, err := ids.inImage(strconv.Itoa(ids.Default.UID)); err == nil {
		o.list = slices.DeleteFunc(who.Groups, func(g int) bool { return g == ids.Default.GID })
	}
	return o.list
}

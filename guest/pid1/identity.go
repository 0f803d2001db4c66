package pid1

import (
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// An identity is a user of the container.
type identity struct {
	name     string
	uid, gid int
	home     string
	self     bool // the guest's own user: nothing to switch
	groups   bool // there are supplementary groups to be rid of, and the kernel lets us
}

// identities are those a caller may name.
type identities struct {
	user, root identity
}

// newIdentities makes the two. A guest that is not root can act only as itself.
func newIdentities(uid, gid int) identities {
	have, err := os.Getgroups()
	groups := err != nil || len(have) > 0
	if b, err := os.ReadFile("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(b)) == "deny" {
		groups = false
	}
	own := os.Geteuid()
	return identities{
		user: identity{name: "user", uid: uid, gid: gid, home: homeOf(uid), self: own != 0, groups: groups},
		root: identity{name: "root", home: "/root", self: true},
	}
}

// named is the identity of that name.
func (ids identities) named(name string) (identity, error) {
	switch name {
	case "", proto.UserDefault:
		return ids.user, nil
	case proto.UserRoot:
		return ids.root, nil
	}
	return identity{}, proto.Errorf(proto.InvalidArgument, "guest", name, "unknown user %q; use \"user\" or \"root\"",
		wire.CleanText(name, 64))
}

// homeOf reads the home directory of uid from the image's user list.
func homeOf(uid int) string {
	if e, ok := findUser("/etc/passwd", uid); ok && strings.HasPrefix(e.home, "/") {
		return e.home
	}
	return "/"
}

// credential is what a child needs to become i; nil if it is that already.
func (i identity) credential() *syscall.Credential {
	if i.self {
		return nil
	}
	return &syscall.Credential{Uid: uint32(i.uid), Gid: uint32(i.gid), NoSetGroups: !i.groups}
}

// become is i for whoever acts as i already, as fn of do does.
func (i identity) become() identity {
	i.self = true
	return i
}

// do runs fn with i's credentials, so that the kernel checks i's permissions. They
// are the calling thread's alone: the raw system calls do not reach the others, and a
// locked thread is never the parent of another. fn must not start goroutines that need them.
func (i identity) do(fn func() error) error {
	if i.self {
		return fn()
	}
	runtime.LockOSThread()
	if err := i.assume(); err != nil {
		_ = i.restore()
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		// A thread that cannot become root again stays locked and dies with its goroutine.
		if i.restore() == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

// keepID leaves an ID as it is in setresuid and setresgid.
const keepID = ^uintptr(0)

// assume changes the effective IDs; the saved ones stay root's, to come back by.
func (i identity) assume() error {
	if i.groups {
		if err := rawCall(unix.SYS_SETGROUPS, 0, 0, 0); err != nil {
			return err
		}
	}
	if err := rawCall(unix.SYS_SETRESGID, keepID, uintptr(i.gid), keepID); err != nil {
		return err
	}
	return rawCall(unix.SYS_SETRESUID, keepID, uintptr(i.uid), keepID)
}

func (i identity) restore() error {
	if err := rawCall(unix.SYS_SETRESUID, keepID, 0, keepID); err != nil {
		return err
	}
	return rawCall(unix.SYS_SETRESGID, keepID, 0, keepID)
}

// rawCall affects the calling thread only, unlike package syscall's functions for the same.
func rawCall(trap, a, b, c uintptr) error {
	if _, _, no := syscall.RawSyscall(trap, a, b, c); no != 0 {
		return no
	}
	return nil
}

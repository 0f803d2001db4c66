// Package user describes the users of a container that the guest acts as: the ordinary user and root. It switches the
// calling thread to a user, so that the kernel checks that user's permissions. It also adds the ordinary user to an
// image's passwd file. guest/fs, guest/proc and guest/pid1 call it.
package user

import (
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// User is a user of the container.
type User struct {
	Name     string
	UID, GID int
	Home     string
	Self     bool // the guest's own user; no switch is needed
	groups   bool // supplementary groups must be dropped, and the kernel allows it
}

// Users holds the users that a caller may name.
type Users struct {
	Default, Root User
}

// NewUsers makes both users. A guest that is not root can act only as itself.
func NewUsers(uid, gid int) Users {
	have, err := os.Getgroups()
	groups := err != nil || len(have) > 0
	if b, err := os.ReadFile("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(b)) == "deny" {
		groups = false
	}
	own := os.Geteuid()
	return Users{
		Default: User{Name: "user", UID: uid, GID: gid, Home: HomeOf(uid), Self: own != 0, groups: groups},
		Root:    User{Name: "root", Home: "/root", Self: true},
	}
}

// Named returns the user with that name.
func (ids Users) Named(name string) (User, error) {
	switch name {
	case "", proto.UserDefault:
		return ids.Default, nil
	case proto.UserRoot:
		return ids.Root, nil
	}
	return User{}, proto.Errorf(proto.InvalidArgument, "guest", name, "unknown user %q; use \"user\" or \"root\"",
		wire.CleanText(name, 64))
}

// HomeOf reads the home directory of uid from the image's user list.
func HomeOf(uid int) string {
	if e, ok := Find("/etc/passwd", uid); ok && strings.HasPrefix(e.home, "/") {
		return e.home
	}
	return "/"
}

// Credential returns the credentials that a child needs to become i. It returns nil if the guest already is i.
func (i User) Credential() *syscall.Credential {
	if i.Self {
		return nil
	}
	return &syscall.Credential{Uid: uint32(i.UID), Gid: uint32(i.GID), NoSetGroups: !i.groups}
}

// Current returns i for code that already acts as i, for example inside the fn of Do.
func (i User) Current() User {
	i.Self = true
	return i
}

// Do runs fn with i's credentials, so that the kernel checks i's permissions. Only the calling thread changes its
// credentials: the raw system calls do not affect the other threads, and a locked thread is never the parent of
// another. fn must not start goroutines that need the credentials.
func (i User) Do(fn func() error) error {
	if i.Self {
		return fn()
	}
	runtime.LockOSThread()
	if err := i.assume(); err != nil {
		_ = i.restore()
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		// A thread that cannot become root again stays locked and ends with its goroutine.
		if i.restore() == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

// keepID tells setresuid and setresgid to leave an ID unchanged.
const keepID = ^uintptr(0)

// assume changes the effective IDs. The saved IDs stay root's, so that the thread can switch back.
func (i User) assume() error {
	if i.groups {
		if err := rawCall(unix.SYS_SETGROUPS, 0, 0, 0); err != nil {
			return err
		}
	}
	if err := rawCall(unix.SYS_SETRESGID, keepID, uintptr(i.GID), keepID); err != nil {
		return err
	}
	return rawCall(unix.SYS_SETRESUID, keepID, uintptr(i.UID), keepID)
}

func (i User) restore() error {
	if err := rawCall(unix.SYS_SETRESUID, keepID, 0, keepID); err != nil {
		return err
	}
	return rawCall(unix.SYS_SETRESGID, keepID, 0, keepID)
}

// rawCall affects the calling thread only, unlike the corresponding functions of package syscall.
func rawCall(trap, a, b, c uintptr) error {
	if _, _, no := syscall.RawSyscall(trap, a, b, c); no != 0 {
		return no
	}
	return nil
}

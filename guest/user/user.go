// Package user describes the users of a container that the guest acts as: the ordinary user, root, and every user of
// the image, with its groups. It switches the calling thread to a user, so that the kernel checks that user's
// permissions. It also adds the ordinary user to an image's passwd file. guest/fs, guest/proc, guest/pid1 and
// guest/buildstep call it.
package user

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is a user of the container.
type User struct {
	Name     string
	UID, GID int
	Groups   []int // supplementary groups
	Home     string
	Shell    string // "": the image's usual one
	Self     bool   // the guest's own user; no switch is needed
	groups   bool   // supplementary groups must be set or dropped, and the kernel allows it
}

// Users holds the users that a caller may name.
type Users struct {
	Default, Root User
	root          string // where the image is
	others        bool   // the guest may act as any user
	setGroups     bool   // the kernel lets the guest set supplementary groups
	dropGroups    bool   // the guest has supplementary groups
	own           *ownGroups
}

// NewUsers makes both users. A guest that is not root can act only as itself.
func NewUsers(uid, gid int) Users {
	have, err := os.Getgroups()
	may := true
	if b, err := os.ReadFile("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(b)) == "deny" {
		may = false
	}
	own, drop := os.Geteuid(), err != nil || len(have) > 0
	return Users{
		Default: User{Name: "user", UID: uid, GID: gid, Home: HomeOf(uid), Self: own != 0, groups: may && drop},
		Root:    User{Name: "root", Home: "/root", Self: true},
		root:    "/", others: own == 0, setGroups: may, dropGroups: drop, own: &ownGroups{},
	}
}

// IsRoot reports whether i is root, whatever its name is.
func (i User) IsRoot() bool { return i.UID == 0 }

// Same reports whether i and other have the same rights, apart from supplementary groups.
func (i User) Same(other User) bool { return i.UID == other.UID && i.GID == other.GID }

// Rights returns a text that is the same for users with the same IDs and groups.
func (i User) Rights() string { return fmt.Sprint(i.UID, i.GID, i.Groups) }

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
	c := &syscall.Credential{Uid: uint32(i.UID), Gid: uint32(i.GID), NoSetGroups: !i.groups}
	for _, g := range i.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
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
		if err := setGroups(i.Groups); err != nil {
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
	if err := rawCall(unix.SYS_SETRESGID, keepID, 0, keepID); err != nil || len(i.Groups) == 0 {
		return err
	}
	return setGroups(nil)
}

// setGroups sets the supplementary groups of the calling thread.
func setGroups(groups []int) error {
	if len(groups) == 0 {
		return rawCall(unix.SYS_SETGROUPS, 0, 0, 0)
	}
	list := make([]uint32, len(groups))
	for n, g := range groups {
		list[n] = uint32(g)
	}
	return rawCall(unix.SYS_SETGROUPS, uintptr(len(list)), uintptr(unsafe.Pointer(&list[0])), 0)
}

// rawCall affects the calling thread only, unlike the corresponding functions of package syscall.
func rawCall(trap, a, b, c uintptr) error {
	if _, _, no := syscall.RawSyscall(trap, a, b, c); no != 0 {
		return no
	}
	return nil
}

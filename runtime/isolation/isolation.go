// Package isolation reads from /proc how a process is isolated from the host: its user namespace and who owns that,
// its system call filter, no_new_privs and its network. Package containerd asks for the first process of every
// sandbox and uses no sandbox that lacks something.
package isolation

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/outbound"
)

// Of reads the isolation of a process from /proc.
func Of(pid int) (proto.Isolation, error) {
	iso := proto.Isolation{HostUID: -1}
	dir := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return iso, err
	}
	iso.Seccomp = strings.Contains(string(status), "\nSeccomp:\t2\n")
	iso.NoNewPrivs = strings.Contains(string(status), "\nNoNewPrivs:\t1\n")
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return iso, err
	}
	theirs, err := os.Readlink(dir + "ns/user")
	if err != nil {
		return iso, err
	}
	iso.UserNamespace = own != theirs
	if iso.HostUID, err = rootOf(dir + "uid_map"); err != nil {
		return iso, err
	}
	owner, err := Owner(dir + "ns/user")
	if err != nil {
		return iso, err
	}
	iso.OwnCounts = int64(owner) == iso.HostUID
	closed, err := onlyLoopback(dir + "net/dev")
	if err == nil && !closed { // slower
		closed, err = outbound.Closed(dir + "ns/net")
	}
	if err != nil {
		return iso, err
	}
	if closed {
		iso.Network = string(proto.NetworkNone)
	}
	return iso, nil
}

// Owner returns the host's user who made a user namespace and for whom the kernel counts its resources.
func Owner(path string) (uint32, error) {
	ns, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	var uid uint32
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, ns.Fd(), unix.NS_GET_OWNER_UID,
		uintptr(unsafe.Pointer(&uid))); errno != 0 {
		return 0, fmt.Errorf("asking who owns a user namespace: %w", errno)
	}
	return uid, nil
}

// rootOf returns which user outside is user 0 of a user namespace; -1 if there is none.
func rootOf(uidMap string) (int64, error) {
	content, err := os.ReadFile(uidMap)
	if err != nil {
		return -1, err
	}
	for line := range strings.Lines(string(content)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "0" {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return -1, nil
}

// onlyLoopback reads the interfaces of a network namespace: two lines of headings, then one line for each interface.
func onlyLoopback(netDev string) (bool, error) {
	content, err := os.ReadFile(netDev)
	if err != nil {
		return false, err
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	for _, line := range lines[min(2, len(lines)):] {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), ":"); name != "lo" {
			return false, nil
		}
	}
	return true, nil
}

// Lacking returns an error that names the first promise that iso does not keep. mayGain says that programs may gain
// privileges, since the container was asked for with sudo.
func Lacking(id string, iso proto.Isolation, mayGain bool) error {
	for what, there := range map[string]bool{
		"a user namespace of its own": iso.UserNamespace && iso.HostUID > 0,
		"a system call filter":        iso.Seccomp,
		"no_new_privs":                iso.NoNewPrivs || mayGain,
		"a network of its own":        iso.Network == string(proto.NetworkNone),
	} {
		if !there {
			return proto.Errorf(proto.Unsupported, "start", id,
				"container %s came up without %s, so it was not used; run berth doctor on the host", id, what)
		}
	}
	return nil
}

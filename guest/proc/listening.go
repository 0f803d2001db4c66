package proc

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/guest/wire"
	"berth/proto"
)

// stateListen is the state of a listening socket in the kernel's tables.
const stateListen = "0A"

// A listener is one listening socket of the kernel's tables.
type listener struct {
	at    netip.AddrPort
	inode string
}

// Listening lists the ports of the container that programs listen on, with the program where it can be found, sorted
// by port. It leaves out the guest's own.
func (t *Table) Listening() ([]proto.Port, error) {
	var open []listener
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		more, err := readListeners(table)
		if err != nil {
			return nil, wire.FileError(wire.OpPorts, table, err)
		}
		open = append(open, more...)
	}
	owners := t.socketOwners(open)
	list := []proto.Port{}
	for _, l := range open {
		pid := owners[l.inode]
		if pid == t.pid || pid == 0 && l.at.Addr().String() == proto.ContainerAddress || len(list) == wire.MaxPorts {
			continue // the guest's own, and the daemon's
		}
		p := proto.Port{Port: l.at.Port(), Address: l.at.Addr().String(), PID: pid}
		if pid != 0 {
			name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm")) // it may have ended
			p.Program = strings.ToValidUTF8(strings.TrimSpace(string(name)), "?")
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b proto.Port) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address))
	})
	return list, nil
}

// readListeners reads the listening sockets of /proc/net/tcp or tcp6. A kernel without IPv6 has no tcp6.
func readListeners(path string) (list []listener, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() && len(list) < 2*wire.MaxPorts {
		if l, ok := parseListener(lines.Text()); ok {
			list = append(list, l)
		}
	}
	return list, lines.Err()
}

// parseListener parses a line such as "0: 0100007F:1F90 00000000:0000 0A … inode …".
func parseListener(line string) (l listener, ok bool) {
	f := strings.Fields(line)
	if len(f) < 10 || f[3] != stateListen {
		return l, false
	}
	address, port, _ := strings.Cut(f[1], ":")
	raw, err := hex.DecodeString(address)
	n, perr := strconv.ParseUint(port, 16, 16)
	if err != nil || perr != nil || len(raw)%4 != 0 {
		return l, false
	}
	for i := 0; i < len(raw); i += 4 { // the kernel writes each word in the machine's order
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return listener{netip.AddrPortFrom(addr.Unmap(), uint16(n)), f[9]}, ok
}

// socketOwners returns the lowest PID that has each socket open, by inode. Only the owner of a process may look at its
// descriptors.
func (t *Table) socketOwners(open []listener) map[string]int {
	owners := map[string]int{}
	for _, l := range open {
		owners[l.inode] = 0
	}
	all := pids()
	slices.Sort(all)
	for _, pid := range all {
		look := func() error { return markSockets(pid, owners) }
		if look() != nil {
			_ = asOwner(t.ids, pid, look) // it may have ended
		}
	}
	return owners
}

// markSockets enters the PID for those of the sockets that the process has open and that have no owner yet.
func markSockets(pid int, owners map[string]int) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return err
			}
			continue
		}
		inode, ok := strings.CutPrefix(target, "socket:[")
		if key := strings.TrimSuffix(inode, "]"); ok {
			if owner, known := owners[key]; known && owner == 0 {
				owners[key] = pid
			}
		}
	}
	return nil
}

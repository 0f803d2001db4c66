package proc

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/guest/sockets"
	"berth/guest/wire"
	"berth/proto"
)

// Listening lists the ports of the container that programs listen on, with the program where it can be found, sorted
// by port. It leaves out the guest's own.
func (t *Table) Listening() ([]proto.Port, error) { return (&Listeners{table: t}).Look() }

// Listeners follows what listens. It looks for the programs of new sockets only: that means reading the descriptors of
// every process. The zero Listeners with a table has seen nothing yet.
type Listeners struct {
	table *Table
	known map[sockets.Listener]proto.Port // a zero Port is the guest's own
}

// Listeners returns a Listeners.
func (t *Table) Listeners() *Listeners { return &Listeners{table: t} }

// Look returns what listens now, as Listening does.
func (s *Listeners) Look() ([]proto.Port, error) {
	open, err := sockets.Listening(2 * wire.MaxPorts)
	if err != nil {
		return nil, wire.FileError(wire.OpPorts, "sockets", err)
	}
	var added []sockets.Listener
	for _, l := range open {
		if _, ok := s.known[l]; !ok {
			added = append(added, l)
		}
	}
	owners := map[uint64]int{}
	if len(added) > 0 {
		owners = s.table.socketOwners(added)
	}
	known := make(map[sockets.Listener]proto.Port, len(open))
	list := []proto.Port{}
	for _, l := range open {
		p, ok := s.known[l]
		if !ok {
			p = s.table.describe(l, owners[l.Inode])
		}
		known[l] = p
		if p.Port != 0 && len(list) < wire.MaxPorts {
			list = append(list, p)
		}
	}
	s.known = known
	slices.SortFunc(list, func(a, b proto.Port) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address), cmp.Compare(a.PID, b.PID))
	})
	return list, nil
}

// describe returns a socket with its program, or a zero Port for the guest's own and the daemon's.
func (t *Table) describe(l sockets.Listener, pid int) proto.Port {
	if pid == t.pid || pid == 0 && l.At.Addr().String() == proto.ContainerAddress {
		return proto.Port{}
	}
	p := proto.Port{Port: l.At.Port(), Address: l.At.Addr().String(), PID: pid}
	if pid != 0 {
		name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm")) // it may have ended
		p.Program = strings.ToValidUTF8(strings.TrimSpace(string(name)), "?")
	}
	return p
}

// socketOwners returns the lowest PID that has each socket open, by inode. Only the owner of a process may look at its
// descriptors.
func (t *Table) socketOwners(open []sockets.Listener) map[uint64]int {
	owners := map[uint64]int{}
	for _, l := range open {
		owners[l.Inode] = 0
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
func markSockets(pid int, owners map[uint64]int) error {
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
		if !ok {
			continue
		}
		if key, err := strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 64); err == nil {
			if owner, known := owners[key]; known && owner == 0 {
				owners[key] = pid
			}
		}
	}
	return nil
}

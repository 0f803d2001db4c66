// Package sockets reads which TCP sockets of the container listen. It asks the kernel for these alone (sock_diag),
// which takes some tens of microseconds. Where that is not there, as in gVisor, it reads the tables of /proc/net, which
// list every connection. Whose the sockets are is guest/proc's to find.
package sockets

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Listener is one listening socket.
type Listener struct {
	At    netip.AddrPort
	Inode uint64 // as in the links of /proc/PID/fd
}

// noDiag is set once the kernel has said that it has no sock_diag for the guest. After any other error, such as a lack
// of descriptors, the next call asks again.
var noDiag atomic.Bool

// Listening returns the listening sockets, at most most of them.
func Listening(most int) (list []Listener, err error) {
	if !noDiag.Load() {
		if list, err = askKernel(most); err == nil {
			return list, nil
		}
		noDiag.Store(lacksDiag(err))
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		more, err := readTable(table, most-len(list))
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// lacksDiag reports whether an error says that sock_diag is missing or forbidden.
func lacksDiag(err error) bool {
	for _, one := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EPERM, unix.EACCES,
		unix.ENOENT} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// The kernel's interface: a request for the sockets of a family in the state LISTEN, and one message for each of them.
const (
	diagByFamily  = 20 // SOCK_DIAG_BY_FAMILY
	requestBytes  = unix.SizeofNlMsghdr + 56
	messageBytes  = 72
	stateListen   = 10
	inodeOffset   = 68
	portOffset    = 4
	addressOffset = 8
)

var errShort = errors.New("the kernel's answer is cut short")

// askKernel asks by sock_diag.
func askKernel(most int) (list []Listener, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// The kernel answers at once; the limit is for one that does not.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return nil, err
	}
	buf := make([]byte, 16<<10)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		var req [requestBytes]byte
		binary.NativeEndian.PutUint32(req[0:], requestBytes)
		binary.NativeEndian.PutUint16(req[4:], diagByFamily)
		binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
		req[unix.SizeofNlMsghdr], req[unix.SizeofNlMsghdr+1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(req[unix.SizeofNlMsghdr+4:], 1<<stateListen)
		if err := unix.Sendto(fd, req[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, err
		}
		for done := false; !done; {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				return nil, err
			}
			if list, done, err = parseAnswer(list, buf[:n], most); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// parseAnswer adds the sockets of one datagram to the list. done says that the answer is complete.
func parseAnswer(list []Listener, data []byte, most int) (_ []Listener, done bool, err error) {
	for len(data) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(data))
		if size < unix.SizeofNlMsghdr || size > len(data) {
			return nil, false, errShort
		}
		body := data[unix.SizeofNlMsghdr:size]
		switch binary.NativeEndian.Uint16(data[4:]) {
		case unix.NLMSG_DONE:
			return list, true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return nil, false, errShort
			}
			return nil, false, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case diagByFamily:
			if len(body) < messageBytes {
				return nil, false, errShort
			}
			if len(list) < most {
				list = append(list, parseMessage(body))
			}
		}
		data = data[min((size+3)&^3, len(data)):]
	}
	return list, false, nil
}

// parseMessage parses an inet_diag_msg.
func parseMessage(body []byte) Listener {
	var addr netip.Addr
	if body[0] == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(body[addressOffset:]))
	} else {
		addr = netip.AddrFrom16([16]byte(body[addressOffset:])).Unmap()
	}
	return Listener{netip.AddrPortFrom(addr, binary.BigEndian.Uint16(body[portOffset:])),
		uint64(binary.NativeEndian.Uint32(body[inodeOffset:]))}
}

// stateInTable is the state of a listening socket in the kernel's tables.
const stateInTable = "0A"

// readTable reads the listening sockets of /proc/net/tcp or tcp6. A kernel without IPv6 has no tcp6.
func readTable(path string, most int) (list []Listener, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() && len(list) < most {
		if l, ok := parseLine(lines.Text()); ok {
			list = append(list, l)
		}
	}
	return list, lines.Err()
}

// parseLine parses a line such as "0: 0100007F:1F90 00000000:0000 0A … inode …".
func parseLine(line string) (l Listener, ok bool) {
	f := strings.Fields(line)
	if len(f) < 10 || f[3] != stateInTable {
		return l, false
	}
	address, port, _ := strings.Cut(f[1], ":")
	raw, err := hex.DecodeString(address)
	n, perr := strconv.ParseUint(port, 16, 16)
	inode, ierr := strconv.ParseUint(f[9], 10, 64)
	if err != nil || perr != nil || ierr != nil || len(raw)%4 != 0 {
		return l, false
	}
	for i := 0; i < len(raw); i += 4 { // the kernel writes each word in the machine's order
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return Listener{netip.AddrPortFrom(addr.Unmap(), uint16(n)), inode}, ok
}

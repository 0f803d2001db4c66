package outbound

import (
	"encoding/binary"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"berth/proto"
)

// namesPort is the port of name servers.
const namesPort = 53

// Places of the daemon's sockets in the map that the program looks into.
const (
	placeTCP = iota
	placeNames
	places
)

// Offsets in struct bpf_sk_lookup, which the program gets: include/uapi/linux/bpf.h.
const (
	offFamily    = 8  // u32
	offProtocol  = 12 // u32
	offLocalIP   = 40 // u32, in the order of the network
	offLocalPort = 60 // u32, in the machine's order
)

// attach has the kernel give what is sent in a network namespace to the daemon's sockets, until the link is closed.
func attach(network, tcp, names *os.File) (*link.NetNsLink, error) {
	_ = rlimit.RemoveMemlock() // kernels before 5.11 need it; a failure shows below
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{Name: "berth_outbound", Type: ebpf.SockMap, KeySize: 4, ValueSize: 8,
		MaxEntries: places})
	if err != nil {
		return nil, err
	}
	defer sockets.Close() // the program keeps it, and the link the program
	for place, socket := range map[uint32]*os.File{placeTCP: tcp, placeNames: names} {
		if err := sockets.Put(place, uint64(socket.Fd())); err != nil {
			return nil, err
		}
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "berth_outbound", Type: ebpf.SkLookup,
		AttachType: ebpf.AttachSkLookup, License: "Apache-2.0", Instructions: steer(sockets.FD())})
	if err != nil {
		return nil, err
	}
	defer program.Close()
	return link.AttachNetNs(int(network.Fd()), program)
}

// steer returns the program. For each connection or datagram that no socket has taken yet, it chooses one of the
// sockets in the map, or leaves the choice to the kernel:
//
//	not IPv4                                              the kernel
//	TCP to loopback or to the container's own address     the kernel, except for port 53
//	TCP                                                   placeTCP
//	UDP to port 53                                        placeNames
//	other UDP                                             the kernel, which finds none
func steer(sockets int) asm.Instructions {
	own := netip.MustParseAddr(proto.ContainerAddress).As4()
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, offFamily, asm.Word),
		asm.JNE.Imm(asm.R2, unix.AF_INET, "kernel"),
		asm.Mov.Imm(asm.R7, placeTCP),
		asm.LoadMem(asm.R3, asm.R6, offLocalPort, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, offProtocol, asm.Word),
		asm.JEq.Imm(asm.R2, unix.IPPROTO_TCP, "tcp"),
		asm.JNE.Imm(asm.R3, namesPort, "kernel"),
		asm.Mov.Imm(asm.R7, placeNames),
		asm.Ja.Label("choose"),

		asm.JEq.Imm(asm.R3, namesPort, "choose").WithSymbol("tcp"),
		asm.LoadMem(asm.R2, asm.R6, offLocalIP, asm.Word),
		asm.HostTo(asm.BE, asm.R2, asm.Word),
		asm.LoadImm(asm.R3, int64(binary.BigEndian.Uint32(own[:])), asm.DWord),
		asm.JEq.Reg(asm.R2, asm.R3, "kernel"),
		asm.RSh.Imm(asm.R2, 24),
		asm.JEq.Imm(asm.R2, 127, "kernel"),

		asm.StoreMem(asm.RFP, -4, asm.R7, asm.Word).WithSymbol("choose"),
		asm.LoadMapPtr(asm.R1, sockets),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "kernel"),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnSkAssign.Call(),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.FnSkRelease.Call(),
		asm.Mov.Imm(asm.R0, skPass).WithSymbol("kernel"),
		asm.Return(),
	}
}

// skPass is SK_PASS: the packet goes to the chosen socket, or to the one that the kernel finds.
const skPass = 1

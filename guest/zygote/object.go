package zygote

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A zygote gets the code that it executes as a shared object. The guest writes the object here: two pages of a file
// in memory, which LD_PRELOAD names to the dynamic linker. The linker calls the code after it has loaded everything
// else. The code carries out the messages that it receives over a socket (see message.go).

// Offsets in the object. The code contains the same numbers.
const (
	objectCode   = 0x1000
	objectData   = 0x10000 // on a page of its own, even with pages of 64 KiB
	dataHeader   = 0x200   // struct msghdr for receiving; the code sets three addresses in it
	dataPiece    = 0x240   // struct iovec
	dataLocale   = 0x300   // address of the C library's newlocale, set by the dynamic linker; 0 if it has none
	dataEnviron  = 0x308   // address of its environ, likewise
	dataUse      = 0x310   // address of its uselocale
	dataLength   = 0x318   // address of its mblen
	dataMessage  = 0x1000  // the received message
	objectEnd    = objectData + dataMessage + MaxMessage
	MaxMessage   = 0xf000 // bytes
	controlBytes = 64     // for the descriptors of a message
)

// The descriptors of a zygote. Those of a message come after them.
const (
	socketFD = 3
	objectFD = 4 // open until the zygote begins
	givenFD  = 4
)

// endOfText marks the end of the code.
var endOfText = []byte("bert!end")

// newObject writes the object into a sealed file in memory.
func newObject() (fd int, err error) {
	const mayExecute = 0x10 // MFD_EXEC, since Linux 6.3
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if fd, err = unix.MemfdCreate("ahead", flags|mayExecute); err == unix.EINVAL {
		fd, err = unix.MemfdCreate("ahead", flags)
	}
	if err != nil {
		return -1, err
	}
	head, data := objectImage()
	_, err = unix.Pwrite(fd, head, 0)
	if err == nil {
		_, err = unix.Pwrite(fd, data, objectData)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Constants of the ELF format, with the names of its specification.
const (
	elfMachine     = 62 // x86-64
	elfAddress     = 6  // the relocation type for the address of a symbol
	elfHeaderBytes = 64
	programBytes   = 56

	ptLoad, ptDynamic, ptStack = 1, 2, 0x6474e551
	pfX, pfW, pfR              = 1, 2, 4

	dtHash, dtStrtab, dtSymtab, dtRela, dtRelasz, dtRelaent, dtStrsz, dtSyment, dtInit = 4, 5, 6, 7, 8, 9, 10, 11, 12

	symbolBytes     = 24
	weakObject      = 2<<4 | 1
	weakFunction    = 2<<4 | 2
	relocationBytes = 24
)

// wantedSymbols are the symbols that the dynamic linker resolves, and the offsets for their addresses.
var wantedSymbols = []struct {
	name string
	kind byte
	at   uint64
}{
	{"newlocale", weakFunction, dataLocale}, {"uselocale", weakFunction, dataUse}, {"mblen", weakFunction, dataLength},
	{"environ", weakObject, dataEnviron},
}

// objectImage returns the two parts of the object. The first has the headers and the code. The second has the dynamic
// section and the data of the code.
func objectImage() (head, data []byte) {
	code, _, _ := bytes.Cut(unsafe.Slice((*byte)(codeAddress()), objectCode), endOfText)
	const programs = 4
	// an empty hash table, since no program looks up a symbol here
	const hash = elfHeaderBytes + programs*programBytes
	le := binary.LittleEndian
	strings, table, relocated := []byte{0}, make([]byte, symbolBytes), []byte(nil) // the first symbol is always null
	for i, want := range wantedSymbols {
		table = le.AppendUint32(table, uint32(len(strings)))
		table = append(table, want.kind)
		table = append(table, make([]byte, symbolBytes-5)...)
		relocated, _ = binary.Append(relocated, le, []uint64{objectData + want.at, uint64(i+1)<<32 | elfAddress, 0})
		strings = append(append(strings, want.name...), 0)
	}
	counts := []uint32{1 /* bucket */, uint32(1 + len(wantedSymbols)), 0}
	counts = append(counts, make([]uint32, 1+len(wantedSymbols))...) // the chain
	symbols := uint64(hash + (4*len(counts)+7)&^7)
	relocations := symbols + uint64(len(table))
	names := relocations + uint64(len(relocated))
	dynamic := []uint64{
		dtHash, hash, dtSymtab, symbols, dtSyment, symbolBytes, dtStrtab, names, dtStrsz, uint64(len(strings)),
		dtRela, relocations, dtRelasz, uint64(len(relocated)), dtRelaent, relocationBytes, dtInit, objectCode, 0, 0,
	}

	head = append(head, "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	add := func(v any) { head, _ = binary.Append(head, le, v) } // of fixed size
	add([]uint16{3 /* shared */, elfMachine})
	add(uint32(1))
	add([]uint64{0, elfHeaderBytes, 0}) // entry, programs, sections
	add(uint32(0))
	add([]uint16{elfHeaderBytes, programBytes, programs, 0, 0, 0})
	program := func(kind, flags uint32, at, inFile, inMemory, align uint64) {
		add([]uint32{kind, flags})
		add([]uint64{at, at, at, inFile, inMemory, align})
	}
	text, known := uint64(objectCode+len(code)), uint64(8*len(dynamic))
	program(ptLoad, pfR|pfX, 0, text, text, objectData)
	program(ptLoad, pfR|pfW, objectData, dataPiece+16, objectEnd-objectData, objectData)
	program(ptDynamic, pfR|pfW, objectData, known, known, 8)
	program(ptStack, pfR|pfW, 0, 0, 0, 16)
	add(counts)
	head = append(head, make([]byte, int(symbols)-len(head))...)
	head = append(append(head, table...), relocated...)
	head = append(head, strings...)
	head = append(head, make([]byte, objectCode-len(head))...)
	head = append(head, code...)

	data, _ = binary.Append(data, le, dynamic)
	data = append(data, make([]byte, dataPiece+16-len(data))...)
	le.PutUint64(data[dataHeader+24:], 1) // msg_iovlen
	le.PutUint64(data[dataPiece+8:], MaxMessage)
	return head, data
}

package zygote

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// Options of prctl: the address that the kernel clears when a thread ends, where the C library keeps the thread's ID;
// and the memory map of a process.
const (
	getTIDAddress = 40 // PR_GET_TID_ADDRESS
	setMM         = 35 // PR_SET_MM
	mmAll         = 14 // PR_SET_MM_MAP
	mmSize        = 15 // PR_SET_MM_MAP_SIZE
)

// kernelFits reports whether the kernel has the calls that zygotes need. It is called before a zygote starts:
// gVisor's kernel lacks them, and an attempt may end a sandbox.
func kernelFits() bool {
	var address uint64
	var size uint32
	return unix.Prctl(getTIDAddress, uintptr(unsafe.Pointer(&address)), 0, 0, 0) == nil &&
		unix.Prctl(setMM, mmSize, uintptr(unsafe.Pointer(&size)), 0, 0) == nil && size == 8*mmNumbers
}

// handshake receives the address of a started zygote and checks that the zygote is usable. The program must have
// loaded the code, and its C library must keep its thread ID where the guest expects it. The kernel must let a
// process set the addresses of its arguments, so that process lists show the command.
func (g *zygote) handshake() error {
	g.wait = startTimeout
	n, err := g.number()
	if err != nil {
		return err
	}
	g.at = uint64(n) + dataMessage
	if err := g.loadLocale(); err != nil { // first, since it allocates memory
		return err
	}
	if err := g.readLayout(); err != nil {
		return err
	}
	if err := g.checkLayout(); err != nil {
		return err
	}
	if err := g.protect(); err != nil {
		return err
	}
	g.tryTouch()
	g.wait = answerTimeout
	return nil
}

// data returns the address of an offset in the object's data.
func (g *zygote) data(at uint64) uint64 { return g.at - dataMessage + at }

// loadLocale makes the C library load the locale of the zygote's environment and its character conversion. Loading
// takes a tenth of a small command's time. loadLocale does not set the locale, and uses it for one character only.
// bash and Python set the locale in a child as usual, and find it loaded if it is the same.
func (g *zygote) loadLocale() error {
	const (
		all    = 1<<13 - 1 - 1<<6 // LC_ALL_MASK: categories 0 to 12 without 6, which is none
		global = math.MaxUint64   // LC_GLOBAL_LOCALE
	)
	m := &message{at: g.at}
	m.callTo(m.argument(1, 1), callLibC, g.data(dataLocale), all, m.put([]byte{0}), 0)
	m.call(callLibC, g.data(dataUse), 0) // 0 if there is no such locale, which changes nothing
	m.call(callLibC, g.data(dataLength), m.put([]byte("a")), 1)
	m.call(callLibC, g.data(dataUse), global)
	return g.do(m)
}

// Sizes of a zygote's answer: six numbers, and /proc/self/stat, which is shorter than statBytes.
const (
	factBytes = 48
	statBytes = 1024
)

// readLayout asks the zygote for the addresses in the kernel and the C library that a child must change.
func (g *zygote) readLayout() error {
	m := &message{at: g.at}
	facts := m.put(make([]byte, factBytes+statBytes))
	const here = ^uint64(99) // AT_FDCWD
	m.call(unix.SYS_PRCTL, getTIDAddress, facts)
	m.callTo(facts+8, unix.SYS_GETTID)
	m.callTo(facts+16, unix.SYS_BRK, 0)
	m.call(callCopy, facts+24, g.data(dataEnviron), 8)
	m.call(unix.SYS_GET_ROBUST_LIST, 0, facts+32, facts+40)
	m.call(unix.SYS_OPENAT, here, m.put([]byte("/proc/self/stat\x00")), unix.O_RDONLY, 0)
	m.call(unix.SYS_READ, givenFD, facts+factBytes, statBytes-1)
	m.say(facts, factBytes+statBytes)
	if err := g.send(m.bytes()); err != nil {
		return err
	}
	b := make([]byte, factBytes+statBytes)
	if n, err := g.receive(b); err != nil || n != len(b) {
		return fmt.Errorf("the zygote answered %d bytes about its layout: %w", n, cmp.Or(err, wire.ErrFrame))
	}
	le := binary.LittleEndian
	g.tid = le.Uint64(b)
	if own := le.Uint64(b[8:]); own != uint64(g.o.PID) {
		return fmt.Errorf("the zygote is process %d for itself and %d for the guest", own, g.o.PID)
	}
	if g.environ = le.Uint64(b[24:]); g.environ == 0 {
		return errors.New("this C library has no environ")
	}
	g.robust = [2]uint64{le.Uint64(b[32:]), le.Uint64(b[40:])}
	stat, _, _ := strings.Cut(string(b[factBytes:]), "\n")
	var err error
	g.mm, err = parseMemoryMap(stat)
	g.mm.heap.end = le.Uint64(b[16:])
	return err
}

// checkLayout checks that the values at these addresses are the expected ones.
func (g *zygote) checkLayout() error {
	m := &message{at: g.at}
	size := 8 * (1 + fixedArgs + 1 + g.slots + 1) // of the vector on the stack
	m.say(g.tid, 4)
	m.say(g.environ, 8)
	m.say(g.mm.stack, uint64(size))
	if err := g.send(m.bytes()); err != nil {
		return err
	}
	b := make([]byte, size)
	n, err := g.receive(b)
	if err != nil || n != 4 || int(binary.LittleEndian.Uint32(b)) != g.o.PID {
		return fmt.Errorf("the address that the kernel clears does not hold the thread ID of this C library: %w",
			cmp.Or(err, wire.ErrFrame))
	}
	const vars = 1 + fixedArgs + 1 // index of the first variable
	n, err = g.receive(b)
	if err != nil || n != 8 || binary.LittleEndian.Uint64(b) != g.mm.stack+8*vars {
		return fmt.Errorf("environ of this C library is not at the expected address: %w", cmp.Or(err, wire.ErrFrame))
	}
	n, err = g.receive(b)
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if err != nil || n != size || word(0) != fixedArgs || word(vars-2) == 0 || word(vars-1) != 0 ||
		word(vars+g.slots-1) == 0 || word(vars+g.slots) != 0 {
		return fmt.Errorf("the arguments of the zygote are not where the kernel says: %w",
			cmp.Or(err, wire.ErrFrame))
	}
	return nil
}

// protect tries the calls that children will make, and makes the zygote unreadable for other processes of the same
// user.
func (g *zygote) protect() error {
	m := &message{at: g.at}
	m.call(unix.SYS_CLOSE_RANGE, math.MaxUint32, math.MaxUint32, 0)
	g.mm.set(m)
	m.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	return g.do(m)
}

// tryTouch finds out which memory of a prestarted process can be mapped in advance. A start of Python needs nearly
// all of its memory, one page fault at a time. A small command of bash needs too little.
func (g *zygote) tryTouch() {
	if g.kind.program == bash {
		return
	}
	for _, t := range []struct {
		part   extent
		advice uint64
	}{{g.mm.code, unix.MADV_POPULATE_READ}, {g.mm.data, unix.MADV_POPULATE_WRITE}} {
		start, end := t.part.wholePages()
		m := &message{at: g.at}
		m.call(unix.SYS_MADVISE, start, end-start, t.advice)
		calls := m.calls
		if g.do(m) == nil { // otherwise the kernel is older, or part of the memory is not writable
			g.touch = append(g.touch, calls...)
		}
	}
}

// An extent is a range of memory.
type extent struct{ start, end uint64 }

// wholePages returns the extent without a page that begins before it. In data, that page is read-only now.
func (e extent) wholePages() (start, end uint64) {
	page := uint64(unix.Getpagesize())
	return (e.start + page - 1) &^ (page - 1), (e.end + page - 1) &^ (page - 1)
}

// A memoryMap is the kernel's record of the memory ranges of a process.
type memoryMap struct {
	code, data, heap, args, env extent
	// address of the argument count, the argument addresses, 0, the variable addresses, 0
	stack uint64
}

// parseMemoryMap reads a memory map from /proc/self/stat. The end of the heap is not in there.
func parseMemoryMap(stat string) (m memoryMap, err error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const first = 3 // the number of the field after the name, in proc(5)
	for at, v := range map[int]*uint64{
		26: &m.code.start, 27: &m.code.end, 28: &m.stack, 45: &m.data.start, 46: &m.data.end, 47: &m.heap.start,
		48: &m.args.start, 49: &m.args.end, 50: &m.env.start, 51: &m.env.end,
	} {
		if at -= first; at >= len(f) {
			return m, wire.ErrFrame
		}
		if *v, err = strconv.ParseUint(f[at], 10, 64); err != nil {
			return m, err
		}
	}
	return m, nil
}

// mmNumbers is the size of struct prctl_mm_map in numbers of eight bytes.
const mmNumbers = 13

// set adds the call that gives the memory map to the kernel (PR_SET_MM_MAP).
func (m *memoryMap) set(msg *message) {
	const noFile = math.MaxUint32 << 32 // follows an auxv size of 0; no executable descriptor
	at := msg.putNumbers(m.code.start, m.code.end, m.data.start, m.data.end, m.heap.start, m.heap.end, m.stack,
		m.args.start, m.args.end, m.env.start, m.env.end, 0, noFile)
	msg.call(unix.SYS_PRCTL, setMM, mmAll, at, 8*mmNumbers, 0)
}

package pid1

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

// Of prctl: the address that the kernel clears when a thread ends, where the C library has the thread's number, and
// what a process is made of.
const (
	getTIDAddress = 40 // PR_GET_TID_ADDRESS
	setMM         = 35 // PR_SET_MM
	mmAll         = 14 // PR_SET_MM_MAP
	mmSize        = 15 // PR_SET_MM_MAP_SIZE
)

// kernelFits reports whether the kernel has what zygotes need of it, before any is started. gVisor's has not, and a
// sandbox may end over the attempt.
func kernelFits() bool {
	var address uint64
	var size uint32
	return unix.Prctl(getTIDAddress, uintptr(unsafe.Pointer(&address)), 0, 0, 0) == nil &&
		unix.Prctl(setMM, mmSize, uintptr(unsafe.Pointer(&size)), 0, 0) == nil && size == 8*mmNumbers
}

// handshake has a zygote that was started say where it is, and finds out whether it can be of use: whether this program
// has loaded the code at all, its C library keeps books of threads as is expected here, and the kernel lets a process
// say where its arguments are, so that lists of processes show a command as it is.
func (g *zygote) handshake() error {
	g.wait = zygoteStart
	n, err := g.number()
	if err != nil {
		return err
	}
	g.at = uint64(n) + dataMessage
	if err := g.loadLocale(); err != nil { // first, since it takes memory
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

// data is the address of something in the object's data.
func (g *zygote) data(at uint64) uint64 { return g.at - dataMessage + at }

// loadLocale has the C library load what the locale of the zygote's environment needs, and how its characters are
// converted, a tenth of a small command's time. It is not set thereby, but used for one character: bash and Python
// set it in a child as ever, and find it loaded if it is the same.
func (g *zygote) loadLocale() error {
	const (
		all    = 1<<13 - 1 - 1<<6 // LC_ALL_MASK: categories 0 to 12, of which 6 is none
		global = math.MaxUint64   // LC_GLOBAL_LOCALE
	)
	m := &message{at: g.at}
	m.callTo(m.argument(1, 1), callLibC, g.data(dataLocale), all, m.put([]byte{0}), 0)
	m.call(callLibC, g.data(dataUse), 0) // 0 where there is none, which changes nothing
	m.call(callLibC, g.data(dataLength), m.put([]byte("a")), 1)
	m.call(callLibC, g.data(dataUse), global)
	return g.do(m)
}

// What a zygote says of itself: six numbers, and /proc/self/stat, for which there is room enough.
const (
	factBytes = 48
	statBytes = 1024
)

// readLayout asks where the kernel and the C library have what is to be changed in a child.
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
	m.call(unix.SYS_READ, zygoteGiven, facts+factBytes, statBytes-1)
	m.say(facts, factBytes+statBytes)
	if err := g.send(m.bytes()); err != nil {
		return err
	}
	b := make([]byte, factBytes+statBytes)
	if n, err := g.receive(b); err != nil || n != len(b) {
		return fmt.Errorf("what was started ahead says %d bytes of itself: %w", n, cmp.Or(err, wire.ErrFrame))
	}
	le := binary.LittleEndian
	g.tid = le.Uint64(b)
	if own := le.Uint64(b[8:]); own != uint64(g.o.pid) {
		return fmt.Errorf("what was started ahead is process %d for itself and %d for us", own, g.o.pid)
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

// checkLayout looks whether all is where it should be.
func (g *zygote) checkLayout() error {
	m := &message{at: g.at}
	size := 8 * (1 + zygoteArgs + 1 + g.slots + 1) // of what stands there
	m.say(g.tid, 4)
	m.say(g.environ, 8)
	m.say(g.mm.stack, uint64(size))
	if err := g.send(m.bytes()); err != nil {
		return err
	}
	b := make([]byte, size)
	n, err := g.receive(b)
	if err != nil || n != 4 || int(binary.LittleEndian.Uint32(b)) != g.o.pid {
		return fmt.Errorf("this C library keeps something else where it has the kernel clear its thread's number: %w",
			cmp.Or(err, wire.ErrFrame))
	}
	const vars = 1 + zygoteArgs + 1 // where the variables begin
	n, err = g.receive(b)
	if err != nil || n != 8 || binary.LittleEndian.Uint64(b) != g.mm.stack+8*vars {
		return fmt.Errorf("this C library has its environ elsewhere: %w", cmp.Or(err, wire.ErrFrame))
	}
	n, err = g.receive(b)
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if err != nil || n != size || word(0) != zygoteArgs || word(vars-2) == 0 || word(vars-1) != 0 ||
		word(vars+g.slots-1) == 0 || word(vars+g.slots) != 0 {
		return fmt.Errorf("the arguments of what was started ahead are not where the kernel says: %w",
			cmp.Or(err, wire.ErrFrame))
	}
	return nil
}

// protect tries what children will do, and keeps others of the same user from looking into it.
func (g *zygote) protect() error {
	m := &message{at: g.at}
	m.call(unix.SYS_CLOSE_RANGE, math.MaxUint32, math.MaxUint32, 0)
	g.mm.set(m)
	m.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	return g.do(m)
}

// tryTouch finds out which of its memory a spare can have mapped ahead. A Python's start needs nearly all of it, a
// page at a time; a small command of bash needs too little.
func (g *zygote) tryTouch() {
	if g.kind.program == bashProgram {
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
		if g.do(m) == nil { // else the kernel is older, or some of it cannot be written to
			g.touch = append(g.touch, calls...)
		}
	}
}

// An extent is a part of memory.
type extent struct{ start, end uint64 }

// wholePages leaves out a page that begins before it: of data, what is mapped as read-only now.
func (e extent) wholePages() (start, end uint64) {
	page := uint64(unix.Getpagesize())
	return (e.start + page - 1) &^ (page - 1), (e.end + page - 1) &^ (page - 1)
}

// A memoryMap is what the kernel knows of the parts of a process's memory.
type memoryMap struct {
	code, data, heap, args, env extent
	// where the number of arguments stands, their addresses, 0, those of the variables, 0
	stack uint64
}

// parseMemoryMap reads it from /proc/self/stat, but for the end of the heap.
func parseMemoryMap(stat string) (m memoryMap, err error) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const first = 3 // the number of the field that follows the name, in proc(5)
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

// mmNumbers is how many numbers of eight bytes struct prctl_mm_map is.
const mmNumbers = 13

// set adds the call that tells the kernel all this (PR_SET_MM_MAP).
func (m *memoryMap) set(msg *message) {
	const noFile = math.MaxUint32 << 32 // which follows a size of 0
	at := msg.putNumbers(m.code.start, m.code.end, m.data.start, m.data.end, m.heap.start, m.heap.end, m.stack,
		m.args.start, m.args.end, m.env.start, m.env.end, 0, noFile)
	msg.call(unix.SYS_PRCTL, setMM, mmAll, at, 8*mmNumbers, 0)
}

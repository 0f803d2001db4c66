package pid1

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A message tells a zygote what to do, by itself or in a child: system calls one after the other. Of them all it is
// the guest that knows, and the zygote's code is a loop. What they point to is in the message, whose address the
// guest has been told.
type message struct {
	at    uint64 // its address in the zygote
	flags uint64 // of clone; 0 is no child
	tid   uint64 // where the C library keeps the number of its thread
	calls []call
	data  []byte // what follows the calls
}

// A call is a system call by its number and arguments, and where what it returns goes if that is not 0.
type call struct {
	number uint64
	args   [6]uint64
	result uint64
}

// Numbers of no system call.
const (
	callEnd  = ^uint64(0) - iota // for a zygote: the next message; for a child: on to its program
	callCopy                     // to args[0] from args[1], args[2] bytes
	callNext                     // the next message, also for a child
	callLibC                     // the function whose address is at args[0], with the next three arguments
)

const (
	messageHeader = 16
	callBytes     = 64
	maxCalls      = 24
	messageData   = messageHeader + maxCalls*callBytes // where the data begins
)

// call adds a system call.
func (m *message) call(number uint64, args ...uint64) { m.callTo(0, number, args...) }

// callTo adds one whose result goes to an address.
func (m *message) callTo(result, number uint64, args ...uint64) {
	c := call{number: number, result: result}
	copy(c.args[:], args)
	m.calls = append(m.calls, c)
}

// argument is the address of an argument of a call, for the result of one before it.
func (m *message) argument(call, n int) uint64 {
	return m.at + messageHeader + uint64(callBytes*call+8*(1+n))
}

// put adds data and returns its address.
func (m *message) put(b []byte) uint64 {
	at := m.here()
	m.data = append(m.data, b...)
	for len(m.data)%8 != 0 {
		m.data = append(m.data, 0)
	}
	return at
}

// here is the address of what is put next.
func (m *message) here() uint64 { return m.at + messageData + uint64(len(m.data)) }

// putStrings adds strings as the kernel has them above a stack, and their addresses to a vector, with a 0 at its end.
func (m *message) putStrings(vector []uint64, list []string) ([]uint64, extent) {
	start := m.here()
	var b []byte
	for _, v := range list {
		vector = append(vector, start+uint64(len(b)))
		b = append(append(b, v...), 0)
	}
	m.put(b)
	return append(vector, 0), extent{start, start + uint64(len(b))}
}

// putNumbers adds numbers of eight bytes each.
func (m *message) putNumbers(list ...uint64) uint64 {
	b := make([]byte, 0, 8*len(list))
	for _, v := range list {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return m.put(b)
}

// say has something sent to the guest.
func (m *message) say(at, size uint64) {
	m.call(unix.SYS_SENDTO, zygoteSocket, at, size, unix.MSG_NOSIGNAL)
}

// bytes is the message as it is sent, nil if it is too long.
func (m *message) bytes() []byte {
	if m.call(callEnd); len(m.calls) > maxCalls || messageData+len(m.data) > maxMessage {
		return nil
	}
	b := make([]byte, messageData+len(m.data))
	le := binary.LittleEndian
	le.PutUint64(b, m.flags)
	le.PutUint64(b[8:], m.tid)
	at := b[messageHeader:]
	for _, c := range m.calls {
		le.PutUint64(at, c.number)
		for i, v := range c.args {
			le.PutUint64(at[8+8*i:], v)
		}
		le.PutUint64(at[56:], c.result)
		at = at[callBytes:]
	}
	copy(b[messageData:], m.data)
	return b
}

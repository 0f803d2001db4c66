package zygote

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A message is a sequence of system calls for a zygote, or for a child that it forks first. Only the guest knows what
// they do: the zygote's code is a loop. The data that they point to is part of the message. The guest knows the
// message's address in the zygote from the handshake.
type message struct {
	at    uint64 // its address in the zygote
	flags uint64 // flags of clone; 0: no child
	tid   uint64 // address where the C library keeps its thread ID
	calls []call
	data  []byte // the bytes after the calls
}

// A call is a system call: its number, its arguments, and the address for its result, 0 for none.
type call struct {
	number uint64
	args   [6]uint64
	result uint64
}

// Call numbers that are no system calls.
const (
	callEnd  = ^uint64(0) - iota // zygote: wait for the next message; child: return to its program
	callCopy                     // copy args[2] bytes from args[1] to args[0]
	callNext                     // wait for the next message, also in a child
	callLibC                     // call the function whose address is at args[0], with the next three arguments
)

const (
	messageHeader = 16
	callBytes     = 64
	maxCalls      = 24
	messageData   = messageHeader + maxCalls*callBytes // offset of the data
)

// call adds a system call.
func (m *message) call(number uint64, args ...uint64) { m.callTo(0, number, args...) }

// callTo adds a system call whose result is stored at an address.
func (m *message) callTo(result, number uint64, args ...uint64) {
	c := call{number: number, result: result}
	copy(c.args[:], args)
	m.calls = append(m.calls, c)
}

// argument returns the address of an argument of a call, as the target for the result of an earlier call.
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

// here returns the address of the data that put adds next.
func (m *message) here() uint64 { return m.at + messageData + uint64(len(m.data)) }

// putStrings adds strings in the kernel's layout above a stack. It appends their addresses and a final 0 to a vector.
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

// putNumbers adds numbers of eight bytes each, and returns their address.
func (m *message) putNumbers(list ...uint64) uint64 {
	b, _ := binary.Append(nil, binary.LittleEndian, list) // numbers have a fixed size
	return m.put(b)
}

// say adds a call that sends size bytes at an address to the guest.
func (m *message) say(at, size uint64) {
	m.call(unix.SYS_SENDTO, socketFD, at, size, unix.MSG_NOSIGNAL)
}

// bytes returns the encoded message, or nil if it is too long.
func (m *message) bytes() []byte {
	if m.call(callEnd); len(m.calls) > maxCalls || messageData+len(m.data) > MaxMessage {
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

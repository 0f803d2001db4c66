package forkserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A Program is a setup program: what a process does before it becomes a sandbox's guest. It is a list of system
// calls, of which the last executes the guest. A loop in the guest's program runs it (cmd/berth-guest, started as
// ScriptName). The loop has no threads, no Go runtime and no knowledge of sandboxes. The daemon writes the setup
// program, with all data that the calls point to, for the addresses at which the loop maps it.
type Program struct {
	steps []*Step
	data  []byte
}

// A Step is one system call. A call that fails ends the setup program, unless the step says otherwise.
type Step struct {
	what    string // names the step in error messages
	number  uintptr
	args    [6]uint64
	To      uint64     // address to store the call's result at; 0 for none
	Skip    uint8      // how many steps to skip if the result is not 0
	Zero    uint8      // how many steps to skip if the result is 0; or stepFails
	Fine    unix.Errno // an error that counts as a result other than 0
	Instead unix.Errno // an error that skips no step
	index   int        // in the program
}

// stepFails, as Step.Zero, makes a result of 0 a failure.
const stepFails = 0xff

// Supported reports whether setup programs run on this architecture.
const Supported = runtime.GOARCH == "amd64"

// Address and layout of a setup program; steps_amd64.s of cmd/berth-guest has the same numbers.
const (
	scriptAt    = 0x10000000
	ScriptSize  = 1 << 20
	scriptSteps = 24 << 10 // bytes of the steps; the data that they point to follows
	stepBytes   = 80
)

// First words of a message from a setup program. A message is three numbers of eight bytes: one of these, and two
// more.
const (
	ScriptChild  = iota + 1 // then the process number of its child, on the host
	scriptFailed            // then the address of the failed step (0: there is no process), and the error's number
)

// MessageSize is the size of a message in bytes.
const MessageSize = 24

// Descriptors of a setup program.
const (
	scriptFD = 3 // the setup program itself
	AnswerFD = 4 // it writes its messages here
	askFD    = 5 // it reads bytes to wait for from here
	FirstFD  = 6 // the first of all other files
)

// ErrTooLong is returned for sandboxes whose environment is too long.
var ErrTooLong = errors.New("the script is too long")

// Do adds a system call.
func (s *Program) Do(what string, number uintptr, args ...uint64) *Step {
	st := &Step{what: what, number: number, index: len(s.steps)}
	copy(st.args[:], args)
	s.steps = append(s.steps, st)
	return st
}

// Argument returns the address of argument n of st. An earlier call can store its result there.
func (st *Step) Argument(n int) uint64 {
	return scriptAt + uint64(st.index*stepBytes+8+8*n)
}

// Bytes adds data and returns its address.
func (s *Program) Bytes(b []byte) uint64 {
	at := scriptAt + scriptSteps + uint64(len(s.data))
	s.data = append(s.data, b...)
	for len(s.data)%8 != 0 {
		s.data = append(s.data, 0)
	}
	return at
}

// Text adds a string that ends with a NUL byte and returns its address.
func (s *Program) Text(t string) uint64 { return s.Bytes(append([]byte(t), 0)) }

// Numbers adds numbers of eight bytes and returns their address.
func (s *Program) Numbers(list ...uint64) uint64 {
	b := make([]byte, 0, 8*len(list))
	for _, v := range list {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return s.Bytes(b)
}

// Texts adds strings and the vector of their addresses, which ends with a 0. It returns the address of the vector.
func (s *Program) Texts(list []string) uint64 {
	vector := make([]uint64, 0, len(list)+1)
	for _, t := range list {
		vector = append(vector, s.Text(t))
	}
	return s.Numbers(append(vector, 0)...)
}

// Say adds a step that sends a message to the daemon. It returns the address of the message.
func (s *Program) Say(what string, word, value uint64) (at uint64) {
	at = s.Numbers(word, value, 0)
	s.Do(what, unix.SYS_WRITE, AnswerFD, at, MessageSize)
	return at
}

// Wait adds a step that waits until the daemon has written a byte. The step fails if the daemon has ended.
func (s *Program) Wait(what string) {
	s.Do(what, unix.SYS_READ, askFD, s.Numbers(0), 1).Zero = stepFails
}

// file returns the setup program as a file in memory.
func (s *Program) file() (*os.File, error) {
	if len(s.steps)*stepBytes > scriptSteps || scriptSteps+len(s.data) > ScriptSize {
		return nil, ErrTooLong
	}
	b := make([]byte, scriptSteps, scriptSteps+len(s.data))
	ne := binary.NativeEndian
	for i, st := range s.steps {
		at := b[i*stepBytes:]
		ne.PutUint64(at, uint64(st.number))
		for n, v := range st.args {
			ne.PutUint64(at[8+8*n:], v)
		}
		ne.PutUint64(at[56:], st.To)
		at[64], at[65] = st.Skip, st.Zero
		ne.PutUint16(at[66:], uint16(st.Fine))
		ne.PutUint16(at[68:], uint16(st.Instead))
	}
	fd, err := unix.MemfdCreate("script", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "script")
	if _, err := f.Write(append(b, s.data...)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// failure returns the error of the failed step at an address.
func (s *Program) failure(at, errno uint64) error {
	what := "making its process"
	if i := (at - scriptAt) / stepBytes; at >= scriptAt && i < uint64(len(s.steps)) {
		what = s.steps[i].what
	}
	if errno == 0 {
		return fmt.Errorf("%s: nothing came", what)
	}
	return fmt.Errorf("%s: %w", what, unix.Errno(errno))
}

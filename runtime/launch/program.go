package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A script is what a process does before it is a sandbox's guest: system calls, one after the other, of which the
// last executes the guest. The program that runs it is a loop (cmd/berth-guest, called scriptName) without threads,
// without a Go runtime and without knowledge: the daemon writes the script, with all that the calls point to, at the
// addresses where that program will have it.
type Program struct {
	steps []*Step
	data  []byte
}

// A step is a system call. One that fails ends the script, unless the step says otherwise.
type Step struct {
	what    string // for whoever reads of its failure
	number  uintptr
	args    [6]uint64
	To      uint64     // the address that what it returns goes to; 0 for none
	Skip    uint8      // how many steps are left out when it returns something else than 0
	Zero    uint8      // the same when it returns 0; or stepFails
	Fine    unix.Errno // counts as a return of something else than 0
	Instead unix.Errno // leaves no step out
	index   int        // in the script
}

// stepFails is for calls for which 0 is a failure.
const stepFails = 0xff

// Where a script is and how it is laid out; entry_amd64.s has the same numbers.
const (
	scriptAt    = 0x10000000
	ScriptSize  = 1 << 20
	scriptSteps = 24 << 10 // bytes of the steps; behind them is what they point to
	stepBytes   = 80
)

// What a script says, as three numbers of eight bytes: which of these, and two more.
const (
	ScriptChild  = iota + 1 // the process number of its child, on the host
	scriptFailed            // address of the step that failed (0: there is no process), and the error's number
)

const scriptWord = 24

// Descriptors of a script.
const (
	scriptFD  = 3 // itself
	answerFD  = 4 // what it says goes there
	askFD     = 5 // it waits for bytes from there
	scriptFDs = 6 // where others begin
)

// errScriptLong is for sandboxes whose environment is too long.
var errScriptLong = errors.New("the script is too long")

// Do adds a system call.
func (s *Program) Do(what string, number uintptr, args ...uint64) *Step {
	st := &Step{what: what, number: number, index: len(s.steps)}
	copy(st.args[:], args)
	s.steps = append(s.steps, st)
	return st
}

// Argument is the address of argument n of st, for what a call before it returns.
func (st *Step) Argument(n int) uint64 {
	return scriptAt + uint64(st.index*stepBytes+8+8*n)
}

// bytes adds data and returns its address.
func (s *Program) bytes(b []byte) uint64 {
	at := scriptAt + scriptSteps + uint64(len(s.data))
	s.data = append(s.data, b...)
	for len(s.data)%8 != 0 {
		s.data = append(s.data, 0)
	}
	return at
}

// Text adds a string as C has it.
func (s *Program) Text(t string) uint64 { return s.bytes(append([]byte(t), 0)) }

// numbers adds numbers of eight bytes.
func (s *Program) numbers(list ...uint64) uint64 {
	b := make([]byte, 0, 8*len(list))
	for _, v := range list {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return s.bytes(b)
}

// texts adds strings and the vector of their addresses, with a 0 at its end.
func (s *Program) texts(list []string) uint64 {
	vector := make([]uint64, 0, len(list)+1)
	for _, t := range list {
		vector = append(vector, s.Text(t))
	}
	return s.numbers(append(vector, 0)...)
}

// Say has the daemon told something.
func (s *Program) Say(what string, word, value uint64) (at uint64) {
	at = s.numbers(word, value, 0)
	s.Do(what, unix.SYS_WRITE, answerFD, at, scriptWord)
	return at
}

// Wait waits until the daemon has written a byte. It fails when the daemon has gone.
func (s *Program) Wait(what string) {
	s.Do(what, unix.SYS_READ, askFD, s.numbers(0), 1).Zero = stepFails
}

// file is the script as a file in memory.
func (s *Program) file() (*os.File, error) {
	if len(s.steps)*stepBytes > scriptSteps || scriptSteps+len(s.data) > ScriptSize {
		return nil, errScriptLong
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

// failure is the error of a step that failed.
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

package launch

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ScriptName is what the guest's program is called as, instead of being a guest, to start processes that run scripts.
const ScriptName = "script"

// NotAGuest is refused by guests that know nothing of this, before they do anything, and tells whoever lists
// processes what it is.
const NotAGuest = "-starts-containers-of-berth"

// A starter starts processes that run scripts. It is a process, as the daemon itself is slow at that: whatever it
// starts gets all that it has open, a socket of each sandbox among it, and has the kernel close it again. The starter
// has three descriptors and some pages, and those that it starts are copies of it that execute nothing.
//
// It is started when it is needed, and again if somebody has killed it. It ends with the daemon.
type ForkServer struct {
	program string // the guest's

	mu   sync.Mutex
	sock int // the daemon's end of the socket that the process reads; 0: there is no process
}

func NewForkServer(program string) *ForkServer { return &ForkServer{program: program} }

// Close ends the process. What it has started goes on.
func (st *ForkServer) Close() {
	if st == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.end()
}

func (st *ForkServer) end() {
	if st.sock != 0 {
		unix.Close(st.sock)
		st.sock = 0
	}
}

// begin starts the process.
func (st *ForkServer) begin() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	own, its := pair[0], os.NewFile(uintptr(pair[1]), "starter")
	defer its.Close()
	null, err := os.Open(os.DevNull) // until a guest has its own, so that nothing else gets their numbers
	if err != nil {
		unix.Close(own)
		return err
	}
	defer null.Close()
	process, err := os.StartProcess(st.program, []string{ScriptName, NotAGuest}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{its, null, null},
		Sys: &syscall.SysProcAttr{Setsid: true}, // an interrupt at the daemon's terminal is not for it
	})
	if err != nil {
		unix.Close(own)
		return err
	}
	go func() { _, _ = process.Wait() }()
	st.sock = own
	return nil
}

// The numbers of struct clone_args that are not 0; see clone3(2).
const (
	cloneFlags  = 0
	cloneSignal = 4 // at its end
	cloneCgroup = 10
	cloneArgs   = 11 // how many there are
)

// Start has a process run s, in a cgroup of v2 if group names one. It has the files more from scriptFDs on.
func (st *ForkServer) Start(s *Program, group string, more ...*os.File) (_ *Process, err error) {
	n := &Process{script: s}
	var text, answers, asks, into *os.File
	defer func() {
		for _, f := range []*os.File{text, answers, asks, into} {
			f.Close()
		}
		if err != nil {
			n.Close()
		}
	}()
	if text, err = s.file(); err != nil {
		return nil, err
	}
	if n.Answer, answers, err = os.Pipe(); err != nil {
		return nil, err
	}
	if asks, n.Ask, err = os.Pipe(); err != nil {
		return nil, err
	}
	files := append([]*os.File{text, answers, asks}, more...)
	how := [cloneArgs]uint64{cloneSignal: uint64(unix.SIGCHLD)}
	if group != "" {
		if into, err = os.Open(group); err != nil {
			return nil, err
		}
		how[cloneFlags], how[cloneCgroup] = unix.CLONE_INTO_CGROUP, scriptFD+uint64(len(files))
		files = append(files, into)
	}
	message, err := binary.Append(nil, binary.NativeEndian, how)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, f := range files {
		numbers = append(numbers, int(f.Fd()))
	}
	if err := st.send(message, unix.UnixRights(numbers...)); err != nil {
		return nil, fmt.Errorf("having a process started: %w", err)
	}
	return n, nil
}

// send gives the process a message. If it turns out to have ended, there is another.
func (st *ForkServer) send(message, rights []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		young := st.sock == 0
		if young {
			if err := st.begin(); err != nil {
				return err
			}
		}
		err := unix.Sendmsg(st.sock, message, rights, nil, unix.MSG_NOSIGNAL)
		if err == nil {
			return nil
		}
		st.end()
		if young {
			return err
		}
	}
}

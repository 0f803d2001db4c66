// Package forkserver starts processes that run setup programs: lists of system calls with all their arguments. It is
// a speed layer.
//
// What it does: the daemon writes a setup program (program.go), and a process of its own, the fork server, forks a
// copy of itself that executes it. cmd/berth-guest has the loop, in assembly. Package launch uses it to make the
// first process of a sandbox, and this package itself to make the user namespaces of sandboxes (userns.go).
//
// What it buys: a cold create took 53 ms with runc and takes 11 ms with a setup program (docs/notes/creates.md, row
// cold of docs/benchmarks.md).
//
// How it is switched off: with BERTH_FORKSERVER=off in the daemon's environment, runc starts all sandboxes. The fork
// server then makes user namespaces only, which must belong to the sandbox's user. It runs on amd64 alone; on arm64
// runc starts all sandboxes, and a small helper makes the namespaces. See docs/decisions/0010.
package forkserver

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ScriptName is the argv[0] that makes the guest's program a fork server instead of a guest. The fork server starts
// processes that run setup programs.
const ScriptName = "script"

// NotAGuest is an argument that guests without a fork server refuse before they do anything. In a list of processes
// it says what the process is.
const NotAGuest = "-starts-containers-of-berth"

// A Server starts processes that run setup programs. It is a process of its own, because the daemon is slow at
// starting processes: each child of the daemon gets copies of all open files, among them a socket of each sandbox,
// and the kernel must close them again. The fork server has three descriptors and few pages. The processes that it
// starts are copies of it and execute no other program.
//
// It is started on first use, and again if it was killed. It ends with the daemon.
type Server struct {
	program string // path of the guest's program

	mu   sync.Mutex
	sock int // the daemon's end of the socket that the process reads; 0 if there is no process
}

// New returns a Server that runs the guest's program.
func New(program string) *Server { return &Server{program: program} }

// Close ends the fork server. Processes that it has started go on.
func (st *Server) Close() {
	if st == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.end()
}

func (st *Server) end() {
	if st.sock != 0 {
		unix.Close(st.sock)
		st.sock = 0
	}
}

// begin starts the process of the fork server.
func (st *Server) begin() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	own, its := pair[0], os.NewFile(uintptr(pair[1]), "starter")
	defer its.Close()
	null, err := os.Open(os.DevNull) // holds numbers 1 and 2 until a guest opens its own /dev/null
	if err != nil {
		unix.Close(own)
		return err
	}
	defer null.Close()
	process, err := os.StartProcess(st.program, []string{ScriptName, NotAGuest}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{its, null, null},
		Sys: &syscall.SysProcAttr{Setsid: true}, // keeps an interrupt at the daemon's terminal away
	})
	if err != nil {
		unix.Close(own)
		return err
	}
	go func() { _, _ = process.Wait() }()
	st.sock = own
	return nil
}

// Indexes of the fields of struct clone_args that we set; see clone3(2).
const (
	cloneFlags  = 0
	cloneSignal = 4 // sent to the parent when the child ends
	cloneCgroup = 10
	cloneArgs   = 11 // number of fields
)

// Start starts a process that runs s. If group names a cgroup of v2, the process starts in it. The process has the
// files more, from descriptor FirstFD on.
func (st *Server) Start(s *Program, group string, more ...*os.File) (_ *Process, err error) {
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

// send sends a message to the fork server. If the fork server has ended, send starts another one.
func (st *Server) send(message, rights []byte) error {
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

package forkserver

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// startMaker starts a process that makes a user namespace and stays in it until it may leave.
func startMaker(st *Server, owner uint32) (pid int, leave func(), err error) {
	n, err := st.Start(makesUserNamespace(owner), "")
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), makerTime)
	defer cancel()
	if err := n.Born(ctx); err != nil {
		n.Close()
		return 0, nil, err
	}
	return n.PID, func() {
		_, _ = n.Ask.Write([]byte{0}) // the process also ends when the pipe closes
		n.Close()
	}, nil
}

// makesUserNamespace returns a setup program that becomes user owner and makes a user namespace. It keeps its
// capabilities, because some hosts allow no namespace without them.
func makesUserNamespace(owner uint32) *Program {
	const noFixup = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	const same = ^uint64(0)
	s := &Program{}
	s.Do("keeping capabilities", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, noFixup)
	s.Do(fmt.Sprintf("becoming user %d", owner), unix.SYS_SETRESUID, same, uint64(owner), same)
	s.Do("making a namespace", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	own := s.Do("asking for its number", unix.SYS_GETPID)
	own.To = s.Say("telling its number", ScriptChild, 0) + 8
	s.Wait("waiting until the namespace is in use")
	s.Do("ending", unix.SYS_EXIT_GROUP, 0)
	return s
}

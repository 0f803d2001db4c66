package containerd

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// startMaker starts a process that makes a user namespace and stays in it until it may leave.
func startMaker(st *starter, owner uint32) (pid int, leave func(), err error) {
	n, err := st.start(makesUserNamespace(owner), "")
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), makerTime)
	defer cancel()
	if err := n.born(ctx); err != nil {
		n.close()
		return 0, nil, err
	}
	return n.pid, func() {
		_, _ = n.ask.Write([]byte{0}) // it ends with the pipe, too
		n.close()
	}, nil
}

// makesUserNamespace is a script that becomes user owner, but keeps its capabilities, without which some hosts allow
// nobody a namespace, and makes one.
func makesUserNamespace(owner uint32) *script {
	const noFixup = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	const same = ^uint64(0)
	s := &script{}
	s.do("keeping capabilities", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, noFixup)
	s.do(fmt.Sprintf("becoming user %d", owner), unix.SYS_SETRESUID, same, uint64(owner), same)
	s.do("making a namespace", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	own := s.do("asking for its number", unix.SYS_GETPID)
	own.to = s.say("telling its number", scriptChild, 0) + 8
	s.wait("waiting until the namespace is in use")
	s.do("ending", unix.SYS_EXIT_GROUP, 0)
	return s
}

package forkserver

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"time"
)

// makerName is the argv[0] that makes the guest's program create a user namespace instead of being a guest. The
// program does so before the Go runtime starts.
const makerName = "userns"

// startMaker starts a process that makes a user namespace and stays in it until it may leave. It is a process of its
// own, because setup programs do not run on this architecture.
func startMaker(st *Server, owner uint32) (pid int, leave func(), err error) {
	asks, ask, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer asks.Close()
	answer, answers, err := os.Pipe()
	if err != nil {
		ask.Close()
		return 0, nil, err
	}
	defer answer.Close()
	maker, err := os.StartProcess(st.program, []string{makerName, NotAGuest},
		&os.ProcAttr{Files: []*os.File{asks, answers}, Env: []string{}})
	answers.Close()
	if err != nil {
		ask.Close()
		return 0, nil, err
	}
	leave = func() {
		ask.Close()
		_ = maker.Kill() // it may have ended
		_, _ = maker.Wait()
	}
	if err = answer.SetReadDeadline(time.Now().Add(makerTime)); err == nil {
		if _, err = ask.Write(binary.NativeEndian.AppendUint32(nil, owner)); err == nil {
			_, err = answer.Read(make([]byte, 1))
		}
	}
	if err == nil {
		return maker.Pid, leave, nil
	}
	ask.Close()
	_ = maker.Kill()
	if state, waited := maker.Wait(); waited == nil && state.Exited() {
		err = fmt.Errorf("%w (%w)", err, syscall.Errno(state.ExitCode()))
	}
	return 0, nil, err
}

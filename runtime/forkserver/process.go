package forkserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// A Process runs a setup program. It is a sandbox's first process before it becomes the guest, or a process that
// makes a user namespace.
type Process struct {
	script *Program
	Ask    *os.File // carries the bytes that the setup program waits for
	Answer *os.File // carries its messages; ends when it has become the guest
	PID    int      // on the host, once known
}

func (n *Process) Close() {
	if n != nil {
		n.Ask.Close()
		n.Answer.Close()
	}
}

// Abandon closes Ask, which ends the setup program, and returns when it has ended or the deadline of ctx has passed.
func (n *Process) Abandon(ctx context.Context) {
	n.Ask.Close()
	_ = n.bound(ctx)
	_, _ = io.Copy(io.Discard, n.Answer)
	n.Close()
}

// Born waits for the message with the process number, and stores the number in n.PID.
func (n *Process) Born(ctx context.Context) error {
	if err := n.bound(ctx); err != nil {
		return err
	}
	word, number, err := n.Hear()
	if err == nil && word != ScriptChild {
		err = fmt.Errorf("it says %d", word)
	}
	n.PID = int(number)
	return err
}

// bound limits the next read of a message to the deadline of ctx.
func (n *Process) bound(ctx context.Context) error {
	end, _ := ctx.Deadline()
	return n.Answer.SetReadDeadline(end)
}

// Hear returns the next message of the setup program. It returns io.EOF once the process has become the guest or was
// killed.
func (n *Process) Hear() (word, value uint64, err error) {
	var b [MessageSize]byte
	if _, err := io.ReadFull(n.Answer, b[:]); err != nil {
		return 0, 0, err
	}
	ne := binary.NativeEndian
	word, value = ne.Uint64(b[:]), ne.Uint64(b[8:])
	if word == scriptFailed {
		return 0, 0, n.script.failure(value, ne.Uint64(b[16:]))
	}
	return word, value, nil
}

// LetGo lets the first process become the guest, and returns when it has.
func (n *Process) LetGo(ctx context.Context) error {
	if err := n.bound(ctx); err != nil {
		return err
	}
	if _, err := n.Ask.Write([]byte{0}); err != nil {
		return err
	}
	_, _, err := n.Hear()
	if errors.Is(err, io.EOF) { // if it was killed, the caller that waits for the guest sees that
		return nil
	}
	return fmt.Errorf("becoming the guest: %w", err)
}

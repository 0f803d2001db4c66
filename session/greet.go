package session

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"berth/guest"
)

// An Acquaintance is a guest that was met before any session has it: whoever keeps sandboxes ready asks theirs now
// and then whether they are there, and hands over the connection with the sandbox.
type Acquaintance struct {
	client *guest.Client

	mu    sync.Mutex // guards hello
	hello guest.Hello
}

// Meet makes the acquaintance of the guest that dial connects to. It dials nothing yet.
func Meet(dial func(context.Context) (net.Conn, error)) *Acquaintance {
	return &Acquaintance{client: guest.NewClient(dial)}
}

// Greet asks the guest who it is; the function that it returns waits for the answer, and must be called, once. Either
// takes wait at most. A sandbox that "started" says little: its guest must answer over its socket, and as PID 1, or
// it could neither reap orphans nor see all processes.
func (a *Acquaintance) Greet(ctx context.Context, wait time.Duration) (answer func(context.Context) error) {
	hear := a.client.Ask(ctx, wait)
	return func(ctx context.Context) error {
		hello, err := hear(ctx)
		if err != nil {
			return err
		}
		if hello.PID != 1 {
			return errors.New("the guest is not the first process of its container")
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.hello = hello
		return nil
	}
}

// Close drops the connection.
func (a *Acquaintance) Close() error { return a.client.Close() }

// An Introducer is a Runtime whose Start may find a guest that it knows.
type Introducer interface {
	// Introduce hands over the guest of sandbox id, which answered during Start: once, and nil if it was not known
	// before.
	Introduce(id string) *Acquaintance
}

// acquaint finds out who the guest is that has just been started.
func (s *Session) acquaint(ctx context.Context) (guest.Hello, error) {
	if in, ok := s.core.cfg.Runtime.(Introducer); ok {
		if a := in.Introduce(s.id); a != nil {
			s.client().TakeOver(a.client)
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.hello, nil
		}
	}
	return s.client().Hello(ctx)
}

// Dozes reports whether process pid is what waits in the place of a guest that dozes. It is for runtimes; see Dozer.
func Dozes(pid int) bool { return guest.IsDoze(pid) }

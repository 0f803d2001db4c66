package pid1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"berth/guest/client"
	"berth/guest/forward"
	"berth/proto"
)

// freePort returns a port without a listener.
func freePort(t *testing.T) uint16 {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).AddrPort().Port()
}

// knock connects to a port of loopback, as a program in the container does.
func knock(t *testing.T, port uint16) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return c.(*net.TCPConn)
}

// TestRelay checks that a connection from the container arrives at the daemon. All data must arrive in both
// directions, whichever side closes first.
func TestRelay(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		port := freePort(t)
		data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB
		for i := range 3 {
			var inside *net.TCPConn
			if i == 2 { // no portForward waits for it yet
				inside = knock(t, port)
			}
			line, err := w.Listen(short(t), port)
			must(t, err)
			if inside == nil {
				inside = knock(t, port)
			}
			call, err := line.Await(short(t))
			must(t, err)
			go func() { _, _ = inside.Write(data); _ = inside.CloseWrite() }()
			if got, err := io.ReadAll(call); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes came out, %v", len(got), err)
			}
			go func() { _, _ = call.Write(data); _ = call.CloseWrite() }()
			if got, err := io.ReadAll(inside); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes came in, %v", len(got), err)
			}
			must(t, call.Close())
			must(t, call.Close())
		}
	})
}

// TestRelayEnds checks that the end of one side ends the other immediately.
func TestRelayEnds(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		port := freePort(t)
		open := func() (*net.TCPConn, *client.Conn) {
			line, err := w.Listen(short(t), port)
			must(t, err)
			inside := knock(t, port)
			call, err := line.Await(short(t))
			must(t, err)
			return inside, call
		}
		inside, call := open()
		must(t, call.Close())
		if _, err := inside.Read(make([]byte, 1)); err == nil {
			t.Error("the connection goes on inside without the daemon")
		}
		inside, call = open()
		must(t, inside.Close())
		if _, err := call.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the daemon has not heard of the end: %v", err)
		}
		_ = call.SetDeadline(time.Now().Add(10 * time.Second))
		for err := error(nil); err == nil; {
			if _, err = call.Write(make([]byte, 1024)); errors.Is(err, context.DeadlineExceeded) {
				t.Error("it takes what nobody reads")
			}
		}
		must(t, call.Close())

		line, err := w.Listen(short(t), port)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := line.Await(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for nobody: %v", err)
		}
		inside, call = open() // the canceled wait has taken no connection
		_, err = io.WriteString(inside, "hello")
		must(t, err)
		b := make([]byte, 5)
		if _, err := io.ReadFull(call, b); err != nil || string(b) != "hello" {
			t.Errorf("%q, %v", b, err)
		}
		must(t, w.Client.Close())
		if _, err := inside.Read(make([]byte, 1)); err == nil {
			t.Error("the connection goes on inside after the client's end")
		}
	})
}

// TestRelayPort checks that the error for an occupied port names the port, and that commands run meanwhile.
func TestRelayPort(t *testing.T) {
	w := newWorld(t, false)
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	taken := ln.Addr().(*net.TCPAddr).AddrPort().Port()
	_, err = w.Listen(short(t), taken)
	if text := wantCode(t, err, proto.Conflict); !strings.Contains(text, fmt.Sprint(taken)) {
		t.Error(text)
	}
	for range forward.MaxPorts - 1 {
		line, err := w.Listen(short(t), freePort(t))
		must(t, err)
		defer line.Close()
	}
	port := freePort(t) // after the others are open, since it could be one of them otherwise
	line, err := w.Listen(short(t), port)
	must(t, err)
	defer line.Close()
	_, err = w.Listen(short(t), freePort(t))
	wantCode(t, err, proto.TooMany)
	inside := knock(t, port)
	call, err := line.Await(short(t))
	must(t, err)
	defer call.Close()
	_, _ = inside.Write([]byte("x"))
	if _, err := call.Read(make([]byte, 1)); err != nil {
		t.Errorf("one port among others: %v", err)
	}
	if r := w.bash("echo beside"); r.stdout != "beside\n" {
		t.Errorf("%+v", r)
	}
}

// TestRelayGivenUpAsItIsAnswered cancels Listen just as the answer arrives. Listen must return a line or an error,
// never neither.
func TestRelayGivenUpAsItIsAnswered(t *testing.T) {
	w := newWorld(t, false)
	port := freePort(t)
	for i := range 3000 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i%300)*time.Microsecond, cancel)
		line, err := w.Listen(ctx, port)
		if line == nil && err == nil {
			t.Fatal("neither a line nor an error")
		}
		if line != nil {
			line.Close()
		}
		timer.Stop()
		cancel()
	}
}

// Package guesttest has what the tests of both ends of the guest's protocol share. It imports neither end.
package guesttest

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"berth/guest/wire"
	"berth/proto"
)

// Short returns a context that ends a test which hangs.
func Short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually polls a condition that sends no event.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// CheckLeaks fails the test if it leaves goroutines or descriptors behind.
func CheckLeaks(t *testing.T) {
	t.Helper()
	goroutines, fds := runtime.NumGoroutine(), openFiles(t)
	t.Cleanup(func() {
		deadline := time.Now().Add(5 * time.Second)
		for runtime.NumGoroutine() > goroutines || openFiles(t) > fds {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Errorf("left %d goroutines and %d descriptors\n%s", runtime.NumGoroutine()-goroutines,
					openFiles(t)-fds, buf[:runtime.Stack(buf, true)])
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func openFiles(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	Must(t, err)
	return len(entries)
}

// WantCode fails unless err has the code. It returns the message.
func WantCode(t testing.TB, err error, code proto.Code) string {
	t.Helper()
	if proto.CodeOf(err) != code {
		t.Fatalf("got error %v (%s), want %s", err, proto.CodeOf(err), code)
	}
	return err.Error()
}

// Frame returns an encoded frame.
func Frame(kind wire.FrameKind, body string) []byte {
	var h [wire.HeaderBytes]byte
	wire.PutHeader(&h, kind, len(body))
	return append(h[:], body...)
}

// PlainConn hides that a connection is a unix socket.
type PlainConn struct{ net.Conn }

package client

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"berth/proto"
)

// short is a context that ends a test which hangs.
func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkLeaks fails the test if it leaves goroutines or descriptors behind.
func checkLeaks(t *testing.T) {
	t.Helper()
	ClosePipes()
	goroutines, fds := runtime.NumGoroutine(), openFiles(t)
	t.Cleanup(func() {
		deadline := time.Now().Add(5 * time.Second)
		for ClosePipes(); runtime.NumGoroutine() > goroutines || openFiles(t) > fds; ClosePipes() {
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
	must(t, err)
	return len(entries)
}

// wantCode fails unless err has the code, and returns its message.
func wantCode(t testing.TB, err error, code proto.Code) string {
	t.Helper()
	if proto.CodeOf(err) != code {
		t.Fatalf("got error %v (%s), want %s", err, proto.CodeOf(err), code)
	}
	return err.Error()
}

// A plainConn hides that it is a unix socket.
type plainConn struct{ net.Conn }

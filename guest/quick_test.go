package guest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// quickPair is a guest's end of a connection, and the other.
func quickPair(t *testing.T) (*conn, *net.UnixConn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	defer ln.Close()
	other, err := net.Dial("unix", ln.Addr().String())
	must(t, err)
	t.Cleanup(func() { other.Close() })
	c, err := ln.Accept()
	must(t, err)
	t.Cleanup(func() { c.Close() })
	w := newQuickConn(c)
	if w.quick == nil {
		t.Fatal("it is not quick")
	}
	return w, other.(*net.UnixConn)
}

// TestQuickWaits: reads wait for what comes late, writes for a reader that is slow, and both no longer than they may.
func TestQuickWaits(t *testing.T) {
	w, other := quickPair(t)
	sent := make([]byte, 4<<20)
	_, _ = rand.Read(sent) // never fails
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(other)
		got <- b
	}()
	for piece := range bytes.SplitAfterSeq(sent, []byte{0}) {
		must(t, w.quick.write(piece))
	}
	p := make([]byte, 100)
	go func() { _, _ = other.Write([]byte("late")) }()
	if n, control, err := w.quick.read(p); err != nil || string(p[:n]) != "late" || len(control) > 0 {
		t.Errorf("read %q with %d bytes of control, %v", p[:n], len(control), err)
	}
	_ = w.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, _, err := w.quick.read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing came in time: %v", err)
	}
	_ = w.Close()
	if b := <-got; !bytes.Equal(b, sent) {
		t.Errorf("of %d bytes there came %d, or others", len(sent), len(b))
	}
	if err := w.quick.write(p); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing to what is closed: %v", err)
	}
}

// TestQuickBrings: a descriptor comes once, also if the connection is reset before anything else comes: its number is another file's by then.
func TestQuickBrings(t *testing.T) {
	w, other := quickPair(t)
	r, sent, err := os.Pipe()
	must(t, err)
	defer r.Close()
	_, _, err = other.WriteMsgUnix([]byte("x"), unix.UnixRights(int(sent.Fd())), nil)
	must(t, err)
	_ = sent.Close()
	p := make([]byte, 1)
	if n, err := w.read(p); n != 1 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	fds := w.descriptors()
	if len(fds) != 1 {
		t.Fatalf("%d descriptors came", len(fds))
	}
	_, err = unix.Write(fds[0], []byte("y"))
	must(t, err)
	if n, err := r.Read(p); n != 1 || p[0] != 'y' {
		t.Fatalf("through it came %q, %v", p[:n], err)
	}
	closeAll(fds)
	must(t, w.quick.write([]byte("never read"))) // which makes the end of the connection a reset
	_ = other.Close()
	if n, control, err := w.quick.read(p); n > 0 || len(control) > 0 || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("of what was reset came %d bytes, with %d of control, %v", n, len(control), err)
	}
}

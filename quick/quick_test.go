package quick

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair is a unix connection, the socket of it, and its other end.
func pair(t *testing.T) (*net.UnixConn, *Socket, *net.UnixConn) {
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
	s, err := New(c.(*net.UnixConn))
	must(t, err)
	return c.(*net.UnixConn), s, other.(*net.UnixConn)
}

// TestWaits: reads wait for what comes late, writes for a reader that is slow, and both no longer than they may.
func TestWaits(t *testing.T) {
	c, s, other := pair(t)
	sent := make([]byte, 4<<20)
	_, _ = rand.Read(sent) // never fails
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(other)
		got <- b
	}()
	for piece := range bytes.SplitAfterSeq(sent, []byte{0}) {
		if n, err := s.Send(piece, nil); n != len(piece) || err != nil {
			t.Fatalf("of %d bytes %d were sent: %v", len(piece), n, err)
		}
	}
	if !s.Silent() {
		t.Error("the other side has said something, it is thought")
	}
	p := make([]byte, 100)
	go func() { _, _ = other.Write([]byte("late")) }()
	if n, controlled, err := s.Receive(p, nil); err != nil || string(p[:n]) != "late" || controlled > 0 {
		t.Errorf("received %q with %d bytes of control, %v", p[:n], controlled, err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, _, err := s.Receive(p, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing came in time: %v", err)
	}
	_ = c.Close()
	if b := <-got; !bytes.Equal(b, sent) {
		t.Errorf("of %d bytes there came %d, or others", len(sent), len(b))
	}
	if _, err := s.Send(p, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing to what is closed: %v", err)
	}
}

// TestBrings: a descriptor comes once, also if the connection is reset before anything else comes: its number is
// another file's by then.
func TestBrings(t *testing.T) {
	_, s, other := pair(t)
	far, err := New(other)
	must(t, err)
	r, sent, err := os.Pipe()
	must(t, err)
	defer r.Close()
	_, err = far.Send([]byte("x"), unix.UnixRights(int(sent.Fd())))
	must(t, err)
	_ = sent.Close()
	p, control := make([]byte, 1), make([]byte, 64)
	if s.Silent() {
		t.Error("it is silent, with a byte on its way")
	}
	n, controlled, err := s.Receive(p, control)
	if n != 1 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlled])
	must(t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(messages) != 1 || len(fds) != 1 {
		t.Fatalf("%d descriptors came: %v", len(fds), err)
	}
	_, err = unix.Write(fds[0], []byte("y"))
	must(t, err)
	if n, err := r.Read(p); n != 1 || p[0] != 'y' {
		t.Fatalf("through it came %q, %v", p[:n], err)
	}
	_ = unix.Close(fds[0])
	_, err = s.Send([]byte("never read"), nil) // which makes the end of the connection a reset
	must(t, err)
	_ = other.Close()
	if n, controlled, err := s.Receive(p, control); n > 0 || controlled > 0 || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("of what was reset came %d bytes, with %d of control, %v", n, controlled, err)
	}
	if s.Silent() {
		t.Error("nobody is there, and it is thought silent")
	}
}

// TestListen: what short and long pieces make together arrives in order, in both directions, deadlines hold, and
// errors are those of package net.
func TestListen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	quick := Listen(ln)
	other, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	defer other.Close()
	c, err := quick.Accept()
	must(t, err)
	defer c.Close()
	if _, ok := c.(*tcp); !ok {
		t.Fatalf("accepted %T", c)
	}
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	echoed := make(chan error, 1)
	go func() {
		p := make([]byte, 3*Most)
		for size := 1; ; size = size%len(p) + 1 { // of every length, on both sides of Most
			n, err := c.Read(p[:size])
			if n > 0 {
				if _, err := c.Write(p[:n]); err != nil {
					echoed <- err
					return
				}
			}
			if err != nil {
				echoed <- err
				return
			}
		}
	}()
	go func() {
		_, _ = other.Write(sent)
		_ = other.(*net.TCPConn).CloseWrite()
	}()
	got := make([]byte, len(sent))
	if n, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back, or others: %v", n, len(sent), err)
	}
	if err := <-echoed; err != io.EOF {
		t.Errorf("the end is %v", err)
	}

	next, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	c, err = quick.Accept()
	must(t, err)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var told *net.OpError
	if _, err := c.Read(got[:1]); !errors.As(err, &told) || !told.Timeout() || told.Op != "read" ||
		told.Addr.String() != next.LocalAddr().String() {
		t.Errorf("nothing came in time: %v", err)
	}
	_ = c.Close()
	if _, err := c.Write(got[:1]); !errors.As(err, &told) || told.Op != "write" || !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing to what is closed: %v", err)
	}
	_ = next.Close()
}

// TestServe: a server is told when a client goes away in the middle, and serves the next request on the same
// connection otherwise.
func TestServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	began, gone := make(chan struct{}), make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) == "wait" {
			close(began)
			<-r.Context().Done()
			close(gone)
		}
		_, _ = io.WriteString(w, r.RemoteAddr)
	})}
	go srv.Serve(Listen(ln))
	defer srv.Close()
	url := "http://" + ln.Addr().String()
	seen := map[string]bool{}
	for range 10 {
		res, err := http.Post(url, "text/plain", bytes.NewReader([]byte("a")))
		must(t, err)
		b, err := io.ReadAll(res.Body)
		must(t, err)
		_ = res.Body.Close()
		seen[string(b)] = true
	}
	if len(seen) != 1 {
		t.Errorf("ten requests took %d connections", len(seen))
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nwait")
	must(t, err)
	<-began
	_ = c.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the client is gone, and the handler is not told")
	}
}

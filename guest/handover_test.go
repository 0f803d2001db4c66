package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// greeted is a guest whose client knows that descriptors cross, which it asks before the first command.
func greeted(t *testing.T) *world {
	w := newWorld(t, false)
	_, err := w.Hello(short(t))
	must(t, err)
	return w
}

// A large part of a file crosses as a descriptor, a small one as frames, and both bring the same bytes.
func TestHandover(t *testing.T) {
	checkLeaks(t)
	w := greeted(t)
	big := make([]byte, 1<<20+7)
	_, _ = rand.Read(big)
	w.put("big", string(big))
	size := int64(len(big))
	for _, c := range []struct {
		off, n, from, to int64
		handed           bool
	}{
		{0, -1, 0, size, true}, {5, handoverBytes, 5, 5 + handoverBytes, true}, {5, handoverBytes - 1, 5,
			4 + handoverBytes, false},
		{size - 3, 100, size - 3, size, false}, {size - handoverBytes, 1 << 40, size - handoverBytes, size, true},
	} {
		for _, copied := range []bool{false, true} {
			r, info, err := w.Read(short(t), "user", "big", c.off, c.n)
			must(t, err)
			if _, is := r.(*handed); is != c.handed {
				t.Errorf("%+v: came as %T", c, r)
			}
			var got bytes.Buffer
			if copied {
				_, err = io.Copy(&got, r) // WriteTo
			} else {
				_, err = io.Copy(&got, struct{ io.Reader }{r})
			}
			must(t, err)
			must(t, r.Close())
			must(t, r.Close())
			if !bytes.Equal(got.Bytes(), big[c.from:c.to]) || info.SizeBytes != size {
				t.Errorf("%+v: got %d bytes", c, got.Len())
			}
		}
	}
	must(t, unix.Mkfifo(filepath.Join(w.workspace, "fifo"), 0o666))
	_, _, err := w.Read(short(t), "user", "fifo", 0, -1)
	wantCode(t, err, proto.InvalidArgument)
	must(t, os.WriteFile(filepath.Join(w.workspace, "secret"), big, 0o600))
	_, _, err = w.Read(short(t), "user", "secret", 0, -1)
	wantCode(t, err, proto.PermissionDenied)
	r, _, err := w.ReadNoLinks(short(t), "user", filepath.Join(w.workspace, "big"))
	must(t, err)
	if _, is := r.(*handed); !is {
		t.Errorf("without links it came as %T", r)
	}
	must(t, r.Close())
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.live) != 1 || len(w.idle) != 1 {
		t.Errorf("%d open and %d idle; all went over one connection", len(w.live), len(w.idle))
	}
}

// A file that becomes shorter is not taken for whole.
func TestHandoverOfWhatShrinks(t *testing.T) {
	checkLeaks(t)
	w := greeted(t)
	for _, read := range []func(r io.Reader) error{
		func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
		func(r io.Reader) error { _, err := io.Copy(io.Discard, struct{ io.Reader }{r}); return err },
	} {
		w.put("shrinks", string(make([]byte, handoverBytes)))
		r, _, err := w.Read(short(t), "user", "shrinks", 0, -1)
		must(t, err)
		must(t, os.Truncate(filepath.Join(w.workspace, "shrinks"), handoverBytes-1))
		wantCode(t, read(r), proto.Conflict)
		must(t, r.Close())
	}
}

// What is being read ends with its client and with its caller.
func TestHandoverEnds(t *testing.T) {
	checkLeaks(t)
	w := greeted(t)
	w.put("big", string(make([]byte, handoverBytes)))
	ctx, cancel := context.WithCancel(short(t))
	canceled, _, err := w.Read(ctx, "user", "big", 0, -1)
	must(t, err)
	r, _, err := w.Read(short(t), "user", "big", 0, -1)
	must(t, err)
	var b [1]byte
	_, err = io.ReadFull(canceled, b[:])
	must(t, err)
	cancel()
	if _, err = io.Copy(io.Discard, canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("after its caller had gone: %v", err)
	}
	must(t, canceled.Close())
	_, err = io.ReadFull(r, b[:])
	must(t, err)
	must(t, w.Close())
	_, err = r.Read(b[:])
	wantCode(t, err, proto.Unavailable)
	_, err = io.Copy(io.Discard, r)
	wantCode(t, err, proto.Unavailable)
	must(t, r.Close())
}

// A guest that hands over what could keep the daemon waiting, or what it was not asked for, is not believed.
func TestLyingHandover(t *testing.T) {
	dir := t.TempDir()
	open := func(name string, flags int) int {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
		must(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	file := open(filepath.Join(dir, "file"), unix.O_RDWR|unix.O_CREAT)
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	fifo := open(filepath.Join(dir, "fifo"), unix.O_RDWR)
	whole := append(say(frameReply, `{"length":0,"handover":true}`), say(frameClose, "")...)
	ask := func(c *Client) (io.ReadCloser, error) {
		c.pipes = supported
		r, _, err := c.Read(short(t), "user", "x", 0, -1)
		return r, err
	}
	t.Run("an honest one", func(t *testing.T) {
		checkLeaks(t)
		r, err := ask(handingLiar(t, whole, file))
		must(t, err)
		must(t, r.Close())
	})
	for name, c := range map[string]struct {
		say []byte
		fds []int
	}{
		"none":           {whole, nil},
		"two":            {whole, []int{file, file}},
		"six":            {whole, []int{file, file, file, file, file, file}},
		"a FIFO":         {whole, []int{fifo}},
		"a directory":    {whole, []int{open(dir, unix.O_RDONLY)}},
		"a terminal":     {whole, []int{open("/dev/ptmx", unix.O_RDWR)}},
		"what a path is": {whole, []int{open("/proc/self/status", unix.O_RDONLY)}},
		"a body after all": {append(say(frameReply, `{"length":4,"handover":true}`), say(frameBody, "four")...),
			[]int{file}},
		"a part below 0": {append(say(frameReply, `{"length":-1,"handover":true}`), say(frameClose, "")...),
			[]int{file}},
		"an error": {append(say(frameReply, `{"length":0,"handover":true}`),
			say(frameError, `{"code":"unavailable"}`)...), []int{file}},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			client := handingLiar(t, c.say, c.fds...)
			_, err := ask(client)
			wantCode(t, err, proto.Unavailable)
			client.mu.Lock()
			defer client.mu.Unlock()
			if len(client.idle) != 0 || len(client.live) != 0 {
				t.Error("its connection is kept")
			}
		})
	}
	t.Run("one that was not asked for", func(t *testing.T) {
		checkLeaks(t)
		client := handingLiar(t, say(frameReply, `{"path":"/x"}`), file)
		_, err := client.Stat(short(t), "user", "x")
		must(t, err)
	})
}

// A handingLiar answers with the same bytes and descriptors, and then goes on listening.
func handingLiar(t testing.TB, say []byte, fds ...int) *Client {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, _, err := readFrame(c, nil); err != nil {
			return
		}
		_, _, _ = c.(*net.UnixConn).WriteMsgUnix(say, unix.UnixRights(fds...), nil)
		_, _ = io.Copy(io.Discard, c)
	}()
	c := NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", ln.Addr().String())
	})
	t.Cleanup(func() { _ = c.Close(); _ = ln.Close(); <-done })
	return c
}

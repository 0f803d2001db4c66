package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// listen listens on a unix socket. The path of one has 108 bytes, so it is not in t.TempDir, which has the test's name.
func listen(t testing.TB) net.Listener {
	t.Helper()
	dir, err := os.MkdirTemp("", "lying-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	must(t, err)
	return ln
}

// A liar answers every connection with the same bytes.
func liar(t testing.TB, say []byte) *Client {
	ln := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, _, err := wire.ReadFrame(c, nil); err != nil {
					return
				}
				_, _ = c.Write(say)
				if uc, ok := c.(*net.UnixConn); ok && len(say) > 0 {
					_ = uc.CloseWrite()
				}
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	c := NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		nc, err := d.DialContext(ctx, "unix", ln.Addr().String())
		return plainConn{Conn: nc}, err
	})
	t.Cleanup(func() { _ = ln.Close(); _ = c.Close(); <-done })
	return c
}

// TestLyingGuest checks that an invalid answer is an error, and that the client drops the connection.
func TestLyingGuest(t *testing.T) {
	endless := bytes.Repeat(say(wire.FrameReply, `{"files":[{"path":"/x"}],"more":true}`), 20_000)
	for name, c := range map[string]struct {
		bytes []byte
		ask   func(c *Client, ctx context.Context) error
	}{
		"huge frame":    {[]byte{'R', 0xff, 0xff, 0xff, 0xff}, stat},
		"no JSON":       {say(wire.FrameReply, "{"), stat},
		"wrong frame":   {say(wire.FrameDone, "{}"), stat},
		"cut off":       {say(wire.FrameReply, `{"path":"/x"}`)[:9], stat},
		"endless parts": {bytes.Repeat(say(wire.FramePart, strings.Repeat("x", wire.MaxFrame)), 400), stat},
		"empty parts":   {bytes.Repeat(say(wire.FramePart, ""), 1000), stat},
		"empty listing": {bytes.Repeat(say(wire.FrameReply, `{"more":true}`), 10), list1},
		"long listing":  {endless, list1},
		"many lines": {inParts(`{"replace":{"lines":[` + strings.Repeat(`"",`, wire.MaxParts) + `""]}}`),
			edit1},
		"long path": {inParts(`{"files":[{"path":"` + strings.Repeat("x", longestPath+1) + `"}]}`),
			list1},
		"long type": {inParts(`{"files":[{"path":"/x","type":"` + strings.Repeat("x", longestPath+1) +
			`"}]}`), list1},
		"long attributes": {inParts(`{"files":[{"path":"/x","attributes":{"a":"` +
			strings.Repeat("x", wire.MaxAttributes) + `"}}]}`), list1},
		"long body": {append(say(wire.FrameReply, `{"length":3}`), say(wire.FrameBody, "four")...),
			read1},
		"short body":              {append(say(wire.FrameReply, `{"length":3}`), say(wire.FrameClose, "")...), read1},
		"more than was asked for": {say(wire.FrameReply, `{"length":11}`), readTen},
		"a body without end":      {say(wire.FrameReply, `{"length":-1}`), readTen},
		"a long version": {say(wire.FrameReply, `{"boot":"b","version":"`+strings.Repeat("x", maxHello)+`"}`),
			hello1},
		"a long boot": {say(wire.FrameReply, `{"boot":"`+strings.Repeat("b", maxBoot+1)+`"}`), hello1},
		"code 256":    {append(say(wire.FrameStarted, `{}`), say(wire.FrameDone, `{"code":256}`)...), exec1},
		"surplus credit": {append(say(wire.FrameStarted, `{}`), append(say(wire.FrameCredit, "\x00\x00\x00\x01"),
			say(wire.FrameDone, "{}")...)...), exec1},
		"acknowledges nothing": {append(say(wire.FrameStarted, `{}`), append(say(wire.FrameAck, "\x00\x00\x00\x01"),
			say(wire.FrameDone, "{}")...)...), exec1},
		"pipes that it did not get": {say(wire.FrameStarted, `{"pipes":true}`), exec1},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			client := liar(t, c.bytes)
			foundOut(t, client, c.ask(client, short(t)))
		})
	}
}

// foundOut checks that err says that the guest was lost, and that the connection was dropped.
func foundOut(t *testing.T, c *Client, err error) {
	t.Helper()
	wantCode(t, err, proto.Unavailable)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) != 0 {
		t.Error("the client keeps the connection")
	}
}

// TestCommasInStrings checks that commas in strings do not count as parts of JSON.
func TestCommasInStrings(t *testing.T) {
	c := liar(t, inParts(`{"view":{"content":"`+strings.Repeat(`,[{\"\\`, wire.MaxParts)+`"}}`))
	r, err := c.Edit(short(t), "user", proto.EditorInput{Command: "view", Path: "x"})
	must(t, err)
	if want := strings.Repeat(`,[{"\`, wire.MaxParts); r.View == nil || r.View.Content != want {
		t.Error("the text has changed")
	}
}

// inParts returns a reply that is too long for one frame.
func inParts(body string) (said []byte) {
	for len(body) > wire.MaxFrame {
		said = append(said, say(wire.FramePart, body[:wire.MaxFrame])...)
		body = body[wire.MaxFrame:]
	}
	return append(said, say(wire.FrameReply, body)...)
}

// TestLongListIsCut checks that a list of long names is cut, and that its rest does not become the next answer.
func TestLongListIsCut(t *testing.T) {
	checkLeaks(t)
	const each = 100_000
	client := liar(t, bytes.Repeat(inParts(`{"files":[{"path":"/`+strings.Repeat("x", each-1)+`"}],"more":true}`),
		listedBytes/each+10))
	files, truncated, err := client.List(short(t), "user", "x")
	if err != nil || !truncated || len(files) != listedBytes/each {
		t.Errorf("%d files, truncated %v, %v", len(files), truncated, err)
	}
	client.mu.Lock()
	defer client.mu.Unlock()
	if len(client.idle) != 0 {
		t.Error("the connection with the rest of the list is kept")
	}
}

// TestAttributesCountInLists checks that a list is cut when the attributes of its files take too much memory, also if
// each of them is tiny.
func TestAttributesCountInLists(t *testing.T) {
	checkLeaks(t)
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, `"%03x":"",`, i)
	}
	message := inParts(`{"files":[{"path":"/x","attributes":{` + strings.TrimSuffix(many.String(), ",") +
		`}}],"more":true}`)
	client := liar(t, bytes.Repeat(message, 100))
	files, truncated, err := client.List(short(t), "user", "x")
	if held := 2000 * 100; err != nil || !truncated || len(files) > listedBytes/held {
		t.Errorf("%d files, truncated %v, %v", len(files), truncated, err)
	}
}

func stat(c *Client, ctx context.Context) error  { _, err := c.Stat(ctx, "user", "x"); return err }
func list1(c *Client, ctx context.Context) error { _, _, err := c.List(ctx, "user", "x"); return err }

func edit1(c *Client, ctx context.Context) error {
	_, err := c.Edit(ctx, "user", proto.EditorInput{Command: "view", Path: "x"})
	return err
}

func read1(c *Client, ctx context.Context) error   { return readN(c, ctx, -1) }
func readTen(c *Client, ctx context.Context) error { return readN(c, ctx, 10) }
func hello1(c *Client, ctx context.Context) error  { _, err := c.Hello(ctx); return err }

func readN(c *Client, ctx context.Context, n int64) error {
	r, _, err := c.Read(ctx, "user", "x", 0, n)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.ReadAll(r)
	return err
}

func exec1(c *Client, ctx context.Context) error {
	c.pipes = unsupported
	p, err := c.Start(ctx, wire.Command{Text: "x", Stdin: true}, func(proto.Stream, int64, []byte) {})
	if err != nil {
		return err
	}
	_, err = p.Wait(ctx)
	return err
}

// TestErrorsAreCleaned checks that a guest's error text is cut and cleaned, since it appears in logs and answers.
func TestErrorsAreCleaned(t *testing.T) {
	c := liar(t, say(wire.FrameError, `{"code":"unauthenticated","item":"a\u001b[31m","message":"`+strings.Repeat(
		"x", 100_000)+`\u0007"}`))
	_, err := c.Stat(short(t), "user", "x")
	var e *proto.Error
	if !errors.As(err, &e) || e.Code != proto.Unavailable || e.Item != "a[31m" || len(e.Message) > 64<<10 {
		t.Errorf("got %.200v", err)
	}
}

// TestSilentGuest checks that every request to a silent guest ends with its context.
func TestSilentGuest(t *testing.T) {
	c := liar(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.Stat(ctx, "user", "x")
	wantCode(t, err, proto.Canceled)
	c.pipes = unsupported
	ctx, cancel = context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := c.Start(ctx, wire.Command{Text: "x"}, func(proto.Stream, int64, []byte) {})
		done <- err
	}()
	cancel()
	wantCode(t, <-done, proto.Canceled)
}

func FuzzClient(f *testing.F) {
	f.Add(say(wire.FrameReply, `{"path":"/x"}`))
	f.Add(append(say(wire.FramePart, `{"path":`), say(wire.FrameReply, `"/x"}`)...))
	f.Add(say(wire.FrameError, `{"code":"not_found","message":"m"}`))
	f.Add(append(say(wire.FrameStarted, `{"pid":1}`), append(say(wire.FrameStdout, "x"),
		say(wire.FrameDone, `{"code":1}`)...)...))
	f.Add(append(say(wire.FrameReply, `{"length":3}`), append(say(wire.FrameBody, "abc"),
		say(wire.FrameClose, "")...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, ask := range []func(*Client, context.Context) error{stat, list1, read1, exec1} {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if _, _, err := wire.ReadFrame(theirs, nil); err != nil {
					return
				}
				_, _ = theirs.Write(b)
			}()
			used := false
			c := NewClient(func(context.Context) (net.Conn, error) {
				if used {
					return nil, errors.New("once")
				}
				used = true
				return ours, nil
			})
			if err := ask(c, context.Background()); err != nil && proto.CodeOf(err) == proto.Internal {
				var e *proto.Error
				if !errors.As(err, &e) {
					t.Errorf("untyped error %v", err)
				}
			}
			_ = c.Close()
		}
	})
}

// TestDyingGuest checks that after one lost connection no command is sent before the guest has answered. A guest that
// is being killed loses its connections one by one, and the client could not tell whether the command started.
func TestDyingGuest(t *testing.T) {
	checkLeaks(t)
	ln := listen(t)
	var conns []net.Conn
	asked := make(chan string, 10)
	served := make(chan struct{})
	go func() { // it answers a Hello on each connection until a command comes, and then nothing any more
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			for {
				_, body, err := wire.ReadFrame(c, nil)
				if err != nil {
					break
				}
				if asked <- string(body[:12]); !bytes.HasPrefix(body, wire.AsHello) {
					_ = c.Close()
					break
				}
				if len(conns) > 1 {
					break
				}
				_, _ = c.Write(say(wire.FrameReply, `{"boot":"b"}`))
			}
		}
	}()
	c := NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		nc, err := d.DialContext(ctx, "unix", ln.Addr().String())
		return plainConn{Conn: nc}, err
	})
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := exec1(c, t.Context()); err == nil || NotStarted(err) {
		t.Errorf("a command that may have started: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := exec1(c, ctx); !NotStarted(err) {
		t.Errorf("a command that did not start: %v", err)
	}
	must(t, c.Close())
	must(t, ln.Close())
	<-served
	for _, nc := range conns {
		_ = nc.Close()
	}
	close(asked)
	var got []string
	for a := range asked {
		got = append(got, a)
	}
	if strings.Join(got, " ") != `{"op":"hello {"op":"exec" {"op":"hello` {
		t.Errorf("asked %q", got)
	}
}

// TestReadsDoNotWaitForTheGuest checks that a guest cannot make the daemon's reads block by changing the ends of
// pipes that it has.
func TestReadsDoNotWaitForTheGuest(t *testing.T) {
	p, err := newCommandPipes(false)
	must(t, err)
	defer p.drop()
	for _, fd := range p.send {
		must(t, unix.SetNonblock(fd, false))
	}
	for _, f := range p.out {
		raw, err := f.SyscallConn()
		must(t, err)
		flags := 0
		must(t, raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) }))
		if must(t, err); flags&unix.O_NONBLOCK == 0 {
			t.Error("the guest can make a read of the daemon block")
		}
	}
	_, err = unix.Write(p.send[0], []byte("x"))
	must(t, err)
	for _, from := range []int{p.send[1], -1} { // both read the same pipe
		var b [1]byte
		n := 0
		if from < 0 {
			_, err = unix.Write(p.send[0], []byte("x"))
			must(t, err)
			n, err = p.out[0].Read(b[:])
		} else {
			n, err = unix.Read(from, b[:])
		}
		if must(t, err); n != 1 || b[0] != 'x' {
			t.Errorf("%d: %q", from, b[:n])
		}
	}
}

// TestPing checks that only a guest that announced pings is pinged, and that any other answer drops the connection.
func TestPing(t *testing.T) {
	for name, c := range map[string]struct {
		how   support
		bytes []byte
		good  bool
	}{
		"the one that it was":     {pinged, say(wire.FramePong, "b"), true},
		"one that knows no words": {supported, say(wire.FrameReply, `{"boot":"b"}`), true},
		"JSON for a word":         {pinged, say(wire.FrameReply, `{"boot":"b"}`), false},
		"a long name":             {pinged, say(wire.FramePong, strings.Repeat("b", maxBoot+1)), false},
		"cut off":                 {pinged, say(wire.FramePong, "b")[:wire.HeaderBytes], false},
		"a word that is not due":  {supported, say(wire.FramePong, "b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			client := liar(t, c.bytes)
			client.pipes, client.hello = c.how, wire.Hello{Boot: "b"}
			_, err := client.Hello(short(t))
			if c.good {
				must(t, err)
			} else {
				foundOut(t, client, err)
			}
		})
	}
}

// TestSupportOfGuests checks how Hello decides whether a guest is pinged, also for guests before 0.1.
func TestSupportOfGuests(t *testing.T) {
	if got := supportOf(wire.Hello{Pipes: true, Ping: true}); got != pinged {
		t.Errorf("of a guest that can be pinged: %d", got)
	}
	for version, want := range map[int]support{-1: supported, 0: supported, 1: supported, 2: pinged, 3: pinged,
		9: pinged} {
		if got := supportOf(wire.Hello{Pipes: true, Packing: version}); got != want {
			t.Errorf("of version %d: %d", version, got)
		}
		if got := supportOf(wire.Hello{Packing: version}); got != unsupported {
			t.Errorf("of version %d without descriptors: %d", version, got)
		}
	}
}

// TestSignalThatEnds checks that a signal that ends its command succeeds, in whatever order the two are reported.
func TestSignalThatEnds(t *testing.T) {
	for range 100 {
		p, wait := Process{done: make(chan struct{})}, make(chan error, 1)
		wait <- nil
		close(p.done)
		must(t, p.acknowledged(t.Context(), wait))
	}
	p := Process{done: make(chan struct{})}
	close(p.done)
	wantCode(t, p.acknowledged(t.Context(), make(chan error, 1)), proto.Conflict)
}

// TestLyingAboutKept checks that implausible frames of a kept command drop the connection.
func TestLyingAboutKept(t *testing.T) {
	piece := func(stream byte, at string, data string) []byte { return say(wire.FrameKept, string(stream)+at+data) }
	zero, far := strings.Repeat("\x00", 8), "\x7f"+strings.Repeat("\x00", 7)
	for name, bytes := range map[string][]byte{
		"no data":           piece(1, zero, ""),
		"no such stream":    piece(3, zero, "x"),
		"beyond all":        piece(1, far, "x"),
		"what we had":       append(piece(1, zero, "xyz"), piece(1, zero, "x")...),
		"an ordinary one":   say(wire.FrameStdout, "x"),
		"an impossible end": say(wire.FrameDone, `{"ago":-1}`),
	} {
		t.Run(name, func(t *testing.T) {
			c := liar(t, append(say(wire.FrameStarted, `{}`), bytes...))
			p, err := c.Attach(short(t), "e", [2]int64{}, false, func(proto.Stream, int64, []byte) {})
			must(t, err)
			_, err = p.Wait(short(t))
			wantCode(t, err, proto.Unavailable)
		})
	}
	_, err := liar(t, say(wire.FrameReply, `["other"]`)).Claim(short(t), []string{"mine"})
	wantCode(t, err, proto.Unavailable)
}

// TestLyingListener checks that invalid frames end a forwarded connection without taking memory.
func TestLyingListener(t *testing.T) {
	ok := say(wire.FrameReply, "{}")
	for name, then := range map[string][]byte{
		"huge frame": {'B', 0xff, 0xff, 0xff, 0xff}, "empty frame": say(wire.FrameBody, ""), "wrong frame": say(
			wire.FrameDone,
			"{}"), "an end with a body": say(wire.FrameClose, "x"), "cut off": say(wire.FrameBody, "hello")[:7],
	} {
		t.Run(name, func(t *testing.T) {
			c := liar(t, append(append(append([]byte{}, ok...), ok...), then...))
			line, err := c.Listen(short(t), 1)
			must(t, err)
			call, err := line.Await(short(t))
			must(t, err)
			defer call.Close()
			if b, err := io.ReadAll(call); err == nil || len(b) > 5 {
				t.Errorf("%q was taken, %v", b, err)
			}
		})
	}
	c := liar(t, say(wire.FrameStdout, "hello"))
	if _, err := c.Listen(short(t), 1); proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("%v", err)
	}
}

// TestLyingHandover checks that the client refuses descriptors that could block it or that it did not request.
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
	whole := append(say(wire.FrameReply, `{"length":0,"handover":true}`), say(wire.FrameClose, "")...)
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
		"a body after all": {append(say(wire.FrameReply, `{"length":4,"handover":true}`),
			say(wire.FrameBody, "four")...),
			[]int{file}},
		"a part below 0": {append(say(wire.FrameReply, `{"length":-1,"handover":true}`), say(wire.FrameClose, "")...),
			[]int{file}},
		"an error": {append(say(wire.FrameReply, `{"length":0,"handover":true}`),
			say(wire.FrameError, `{"code":"unavailable"}`)...), []int{file}},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			client := handingLiar(t, c.say, c.fds...)
			_, err := ask(client)
			wantCode(t, err, proto.Unavailable)
			client.mu.Lock()
			defer client.mu.Unlock()
			if len(client.idle) != 0 || len(client.live) != 0 {
				t.Error("the client keeps the connection")
			}
		})
	}
	t.Run("one that was not asked for", func(t *testing.T) {
		checkLeaks(t)
		client := handingLiar(t, say(wire.FrameReply, `{"path":"/x"}`), file)
		_, err := client.Stat(short(t), "user", "x")
		must(t, err)
	})
}

// A handingLiar answers with the same bytes and descriptors, and then goes on listening.
func handingLiar(t testing.TB, say []byte, fds ...int) *Client {
	ln := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, _, err := wire.ReadFrame(c, nil); err != nil {
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

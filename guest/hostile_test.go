package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// A liar answers every connection with the same bytes.
func liar(t testing.TB, say []byte) *Client {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
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
				if _, _, err := readFrame(c, nil); err != nil {
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
		return plainConn{nc}, err
	})
	t.Cleanup(func() { _ = ln.Close(); _ = c.Close(); <-done })
	return c
}

func say(kind frameKind, body string) []byte {
	var h [headerBytes]byte
	putHeader(&h, kind, len(body))
	return append(h[:], body...)
}

// A guest that lies is found out, and its connection dropped.
func TestLyingGuest(t *testing.T) {
	endless := bytes.Repeat(say(frameReply, `{"files":[{"path":"/x"}],"more":true}`), 20_000)
	for name, c := range map[string]struct {
		bytes []byte
		ask   func(c *Client, ctx context.Context) error
	}{
		"huge frame":    {[]byte{'R', 0xff, 0xff, 0xff, 0xff}, stat},
		"no JSON":       {say(frameReply, "{"), stat},
		"wrong frame":   {say(frameDone, "{}"), stat},
		"cut off":       {say(frameReply, `{"path":"/x"}`)[:9], stat},
		"endless parts": {bytes.Repeat(say(framePart, strings.Repeat("x", MaxFrame)), 400), stat},
		"empty parts":   {bytes.Repeat(say(framePart, ""), 1000), stat},
		"empty listing": {bytes.Repeat(say(frameReply, `{"more":true}`), 10), list1},
		"long listing":  {endless, list1},
		"many lines": {inParts(`{"replace":{"lines":[` + strings.Repeat(`"",`, maxParts) + `""]}}`),
			edit1},
		"long path": {inParts(`{"files":[{"path":"` + strings.Repeat("x", longestPath+1) + `"}]}`),
			list1},
		"long type": {inParts(`{"files":[{"path":"/x","type":"` + strings.Repeat("x", longestPath+1) +
			`"}]}`), list1},
		"long body":               {append(say(frameReply, `{"length":3}`), say(frameBody, "four")...), read1},
		"short body":              {append(say(frameReply, `{"length":3}`), say(frameClose, "")...), read1},
		"more than was asked for": {say(frameReply, `{"length":11}`), readTen},
		"a body without end":      {say(frameReply, `{"length":-1}`), readTen},
		"a long version": {say(frameReply, `{"boot":"b","version":"`+strings.Repeat("x", maxHello)+`"}`),
			hello1},
		"a long boot": {say(frameReply, `{"boot":"`+strings.Repeat("b", maxBoot+1)+`"}`), hello1},
		"code 256":    {append(say(frameStarted, `{}`), say(frameDone, `{"code":256}`)...), exec1},
		"surplus credit": {append(say(frameStarted, `{}`), append(say(frameCredit, "\x00\x00\x00\x01"),
			say(frameDone, "{}")...)...), exec1},
		"acknowledges nothing": {append(say(frameStarted, `{}`), append(say(frameAck, "\x00\x00\x00\x01"),
			say(frameDone, "{}")...)...), exec1},
		"pipes that it did not get": {say(frameStarted, `{"pipes":true}`), exec1},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			client := liar(t, c.bytes)
			foundOut(t, client, c.ask(client, short(t)))
		})
	}
}

// foundOut wants an error that says that the guest was lost, and its connection dropped.
func foundOut(t *testing.T, c *Client, err error) {
	t.Helper()
	wantCode(t, err, proto.Unavailable)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) != 0 {
		t.Error("its connection is kept")
	}
}

// What is in strings is text, however many commas it has.
func TestTextHasNoParts(t *testing.T) {
	c := liar(t, inParts(`{"view":{"content":"`+strings.Repeat(`,[{\"\\`, maxParts)+`"}}`))
	r, err := c.Edit(short(t), "user", proto.EditorInput{Command: "view", Path: "x"})
	must(t, err)
	if want := strings.Repeat(`,[{"\`, maxParts); r.View == nil || r.View.Content != want {
		t.Error("the text is another")
	}
}

// inParts is a reply that is too long for one frame.
func inParts(body string) (said []byte) {
	for len(body) > MaxFrame {
		said = append(said, say(framePart, body[:MaxFrame])...)
		body = body[MaxFrame:]
	}
	return append(said, say(frameReply, body)...)
}

// A list of long names is cut, and its rest is not taken for the next answer.
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
	p, err := c.Start(ctx, Command{Text: "x", Stdin: true}, func(proto.Stream, int64, []byte) {})
	if err != nil {
		return err
	}
	_, err = p.Wait(ctx)
	return err
}

// What a guest says in an error may end up in logs and answers.
func TestErrorsAreCleaned(t *testing.T) {
	c := liar(t, say(frameError, `{"code":"unauthenticated","item":"a\u001b[31m","message":"`+strings.Repeat(
		"x", 100_000)+`\u0007"}`))
	_, err := c.Stat(short(t), "user", "x")
	var e *proto.Error
	if !errors.As(err, &e) || e.Code != proto.Unavailable || e.Item != "a[31m" || len(e.Message) > 64<<10 {
		t.Errorf("got %.200v", err)
	}
}

// A guest that says nothing is given up on when the caller's patience ends.
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
		_, err := c.Start(ctx, Command{Text: "x"}, func(proto.Stream, int64, []byte) {})
		done <- err
	}()
	cancel()
	wantCode(t, <-done, proto.Canceled)
}

// A daemon that speaks nonsense loses its connection; the guest goes on.
func TestNonsenseToGuest(t *testing.T) {
	w := newWorld(t, false)
	for _, b := range [][]byte{
		{'Q', 0xff, 0, 0, 0}, say(frameRequest, "{"), say(frameRequest, `{"op":"fly"}`),
		say(frameRequest, `{"op":"exec"}`),
		say(frameRequest, `{"op":"exec","command":{"text":"true"},"pipes":4}`), say('?', "x"),
		say(frameRequest, `{"op":"edit","path":"YQ=="}`),
		bytes.Repeat(say(framePart, strings.Repeat("x", MaxFrame)), 200),
	} {
		c, err := w.dialer(false)(short(t))
		must(t, err)
		_, _ = c.Write(b)
		if uc, ok := c.(*net.UnixConn); ok {
			_ = uc.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	for range 50 { // closed with an answer unread, which the guest sees as a reset
		c, err := w.dialer(false)(short(t))
		must(t, err)
		_, _ = c.Write(append(say(frameRequest, `{"op":"hello"}`),
			say(frameRequest, `{"op":"tar","path":"L3Vzcg=="}`)...))
		_ = c.Close()
	}
	if r := w.bash("echo fine"); r.stdout != "fine\n" {
		t.Errorf("got %+v", r)
	}
}

// User code in the container can reach neither end.
func TestSocketIsRoots(t *testing.T) {
	w := newWorld(t, false)
	must(t, os.Chmod(filepath.Join(w.dir, "guest.sock"), 0o600))
	r := w.run(Command{Argv: []string{"python3", "-c",
		"import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])", filepath.Join(w.dir, "guest.sock")}})
	if r.Code == 0 || !strings.Contains(r.stderr, "PermissionError") {
		t.Errorf("got %+v", r)
	}
}

func FuzzClient(f *testing.F) {
	f.Add(say(frameReply, `{"path":"/x"}`))
	f.Add(append(say(framePart, `{"path":`), say(frameReply, `"/x"}`)...))
	f.Add(say(frameError, `{"code":"not_found","message":"m"}`))
	f.Add(append(say(frameStarted, `{"pid":1}`), append(say(frameStdout, "x"), say(frameDone, `{"code":1}`)...)...))
	f.Add(append(say(frameReply, `{"length":3}`), append(say(frameBody, "abc"), say(frameClose, "")...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, ask := range []func(*Client, context.Context) error{stat, list1, read1, exec1} {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if _, _, err := readFrame(theirs, nil); err != nil {
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

func FuzzFrames(f *testing.F) {
	f.Add(say(frameRequest, `{"op":"stat"}`))
	f.Add([]byte{'c', 0, 0, 0, 1, 'x', 'Q', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var buf []byte
		total := 0
		for {
			_, body, err := readMessage(func() (frameKind, []byte, error) {
				kind, body, err := readFrame(r, buf)
				buf = body
				return kind, body, err
			}, 4096)
			if err != nil {
				break
			}
			if len(body) > 4096 {
				t.Fatalf("%d bytes of a message", len(body))
			}
			total += len(body) + headerBytes
			var req request
			_ = decode(body, &req)
			_, _, _ = numbers(body, 3)
		}
		if total > len(b) {
			t.Fatalf("%d bytes out of %d", total, len(b))
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20\n"))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(1, b) })
}

func FuzzHunk(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nx\nc"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		h := hunk(a, b)
		old, fresh := 0, 0
		for _, line := range h.Lines {
			switch line[0] {
			case ' ':
				old++
				fresh++
			case '-':
				old++
			case '+':
				fresh++
			}
		}
		if old != *h.OldLines || fresh != *h.NewLines {
			t.Errorf("%q -> %q: %+v", a, b, h)
		}
	})
}

// A guest that is being killed loses its connections one by one. Once the first is gone, no command is sent over
// another one before the guest has said that it is there: nobody would know whether it began.
func TestDyingGuest(t *testing.T) {
	checkLeaks(t)
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
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
				_, body, err := readFrame(c, nil)
				if err != nil {
					break
				}
				if asked <- string(body[:12]); !bytes.HasPrefix(body, asHello) {
					_ = c.Close()
					break
				}
				if len(conns) > 1 {
					break
				}
				_, _ = c.Write(say(frameReply, `{"boot":"b"}`))
			}
		}
	}()
	c := NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		nc, err := d.DialContext(ctx, "unix", ln.Addr().String())
		return plainConn{nc}, err
	})
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := exec1(c, t.Context()); err == nil || NotStarted(err) {
		t.Errorf("a command that may have begun: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := exec1(c, ctx); !NotStarted(err) {
		t.Errorf("a command that did not begin: %v", err)
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

// What a guest does with the ends of pipes that it gets changes nothing about ours: its reads of them may wait, and
// ours never do.
func TestReadsDoNotWaitForTheGuest(t *testing.T) {
	p, err := newPlumbing(false)
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
			t.Error("a read of ours would wait for as long as the guest likes")
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

// Only a guest that has said that it understands it is asked in a word who it is, and one that answers with anything
// but that loses its connection.
func TestAskedInAWord(t *testing.T) {
	for name, c := range map[string]struct {
		how   support
		bytes []byte
		good  bool
	}{
		"the one that it was":     {pinged, say(frameHere, "b"), true},
		"one that knows no words": {supported, say(frameReply, `{"boot":"b"}`), true},
		"JSON for a word":         {pinged, say(frameReply, `{"boot":"b"}`), false},
		"a long name":             {pinged, say(frameHere, strings.Repeat("b", maxBoot+1)), false},
		"cut off":                 {pinged, say(frameHere, "b")[:headerBytes], false},
		"a word that is not due":  {supported, say(frameHere, "b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			client := liar(t, c.bytes)
			client.pipes, client.hello = c.how, Hello{Boot: "b"}
			_, err := client.Hello(short(t))
			if c.good {
				must(t, err)
			} else {
				foundOut(t, client, err)
			}
		})
	}
}

// How a guest is asked follows from what it says in Hello, also where it is a guest before 0.1 and says a version.
func TestSupportOfGuests(t *testing.T) {
	if got := supportOf(Hello{Pipes: true, Ping: true}); got != pinged {
		t.Errorf("of a guest that can be pinged: %d", got)
	}
	for version, want := range map[int]support{-1: supported, 0: supported, 1: supported, 2: pinged, 3: pinged,
		9: pinged} {
		if got := supportOf(Hello{Pipes: true, Packing: version}); got != want {
			t.Errorf("of version %d: %d", version, got)
		}
		if got := supportOf(Hello{Packing: version}); got != unsupported {
			t.Errorf("of version %d without descriptors: %d", version, got)
		}
	}
	w := newWorld(t, false)
	h, err := w.Hello(short(t))
	must(t, err)
	for _, how := range []support{supported, pinged} {
		w.pipes = how
		again, err := w.Hello(short(t))
		must(t, err)
		p, err := w.Start(t.Context(), Command{Text: "exit 3"}, func(proto.Stream, int64, []byte) {})
		must(t, err)
		x, err := p.Wait(t.Context())
		must(t, err)
		if h != again || x.Code != 3 || w.pipes != how {
			t.Errorf("asked as %d: %+v, %+v", how, again, x)
		}
	}
}

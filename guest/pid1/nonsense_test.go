package pid1

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/guest/wire"
)

// TestNonsenseToGuest checks that a daemon that sends invalid data loses its connection, and that the guest
// continues.
func TestNonsenseToGuest(t *testing.T) {
	w := newWorld(t, false)
	for _, b := range [][]byte{
		{'Q', 0xff, 0, 0, 0}, frame(wire.FrameRequest, "{"), frame(wire.FrameRequest, `{"op":"fly"}`),
		frame(wire.FrameRequest, `{"op":"exec"}`),
		frame(wire.FrameRequest, `{"op":"exec","command":{"text":"true"},"pipes":4}`), frame('?', "x"),
		frame(wire.FrameRequest, `{"op":"edit","path":"YQ=="}`),
		bytes.Repeat(frame(wire.FramePart, strings.Repeat("x", wire.MaxFrame)), 200),
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
	for range 50 { // closed with an unread answer, which the guest sees as a reset
		c, err := w.dialer(false)(short(t))
		must(t, err)
		_, _ = c.Write(append(frame(wire.FrameRequest, `{"op":"hello"}`),
			frame(wire.FrameRequest, `{"op":"tar","path":"L3Vzcg=="}`)...))
		_ = c.Close()
	}
	if r := w.bash("echo fine"); r.stdout != "fine\n" {
		t.Errorf("got %+v", r)
	}
}

// TestSocketIsRoots checks that user code in the container cannot connect to the guest's socket.
func TestSocketIsRoots(t *testing.T) {
	w := newWorld(t, false)
	must(t, os.Chmod(filepath.Join(w.dir, "guest.sock"), 0o600))
	r := w.run(wire.Command{Argv: []string{"python3", "-c",
		"import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])", filepath.Join(w.dir, "guest.sock")}})
	if r.Code == 0 || !strings.Contains(r.stderr, "PermissionError") {
		t.Errorf("got %+v", r)
	}
}

// TestAnswersBothHellos checks that a hello request and a ping return the same boot ID.
func TestAnswersBothHellos(t *testing.T) {
	w := newWorld(t, false)
	h, err := w.Hello(short(t))
	must(t, err)
	c, err := w.dialer(false)(short(t))
	must(t, err)
	defer c.Close()
	for sent, want := range map[string]wire.FrameKind{
		string(frame(wire.FrameRequest, `{"op":"hello"}`)): wire.FrameReply,
		string(frame(wire.FramePing, "")):                  wire.FramePong,
	} {
		_, err := c.Write([]byte(sent))
		must(t, err)
		kind, body, err := wire.ReadFrame(c, nil)
		must(t, err)
		var again wire.Hello
		if kind == wire.FramePong {
			again.Boot = string(body)
		} else {
			must(t, wire.Decode(body, &again))
		}
		if kind != want || again.Boot != h.Boot {
			t.Errorf("asked by %q: %c %q", sent, kind, body)
		}
	}
}

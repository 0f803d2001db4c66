package pid1

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/guest/wire"
	"berth/proto"
)

// TestDial checks that the daemon reaches what listens in the container, over both families of addresses, with all data
// in both directions and an end of each.
func TestDial(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB
		for _, at := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
			ln, err := net.Listen("tcp", at)
			must(t, err)
			defer ln.Close()
			served := make(chan error, 1)
			go func() {
				c, err := ln.Accept()
				if err == nil {
					var got []byte
					got, err = io.ReadAll(c) // ends with the daemon's half
					if err == nil && !bytes.Equal(got, data) {
						err = fmt.Errorf("%d bytes came in", len(got))
					}
					_, _ = c.Write(data)
					_ = c.Close()
				}
				served <- err
			}()
			c, err := w.Dial(short(t), ln.Addr().(*net.TCPAddr).AddrPort().Port())
			must(t, err)
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			go func() { _, _ = c.Write(data); _ = c.CloseWrite() }()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes came out, %v", at, len(got), err)
			}
			must(t, <-served)
			must(t, c.Close())
			must(t, c.Close())
		}
		port := freePort(t)
		_, err := w.Dial(short(t), port)
		if text := wantCode(t, err, proto.NotFound); !strings.Contains(text, fmt.Sprint(port)) {
			t.Error(text)
		}
		if r := w.bash("echo beside"); r.stdout != "beside\n" {
			t.Errorf("after that: %+v", r)
		}
	})
}

// TestDialEnds checks that a connection ends with the client.
func TestDialEnds(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer ln.Close()
		c, err := w.Dial(short(t), ln.Addr().(*net.TCPAddr).AddrPort().Port())
		must(t, err)
		inside, err := ln.Accept()
		must(t, err)
		defer inside.Close()
		_ = inside.SetDeadline(time.Now().Add(time.Minute))
		read := make(chan error, 1)
		go func() { _, err := c.Read(make([]byte, 1)); read <- err }()
		must(t, w.Client.Close())
		if err := <-read; err == nil {
			t.Error("the daemon reads on after the client's end")
		}
		if _, err := inside.Read(make([]byte, 1)); err == nil {
			t.Error("the connection goes on inside after the client's end")
		}
	})
}

// TestListening checks that a listening program is listed with its name and its PID, also one of another user.
func TestListening(t *testing.T) {
	w := newWorld(t, false)
	for _, user := range []string{"", proto.UserRoot} {
		port := freePort(t)
		var o collected
		p := w.start(wire.Command{User: user, Argv: []string{"python3", "-uc", fmt.Sprintf(`
import socket, time
s = socket.create_server(("127.0.0.1", %d)); print("up"); time.sleep(1000)`, port)}}, &o)
		o.until(t, proto.Stdout, "up")
		list, err := w.Listening(short(t))
		must(t, err)
		i := slices.IndexFunc(list, func(l proto.Port) bool { return l.Port == port })
		if i < 0 {
			t.Fatalf("port %d is not among %v", port, list)
		}
		if l := list[i]; l.Address != "127.0.0.1" || l.PID != p.PID() || !strings.HasPrefix(l.Program, "python3") {
			t.Errorf("%+v, of process %d", l, p.PID())
		}
	}
}

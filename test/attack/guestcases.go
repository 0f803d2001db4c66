package attack

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// Group 21: the guest, which is PID 1 and the daemon's end inside a container. The daemon does everything in a
// container through the guest. A process that takes it over can lie to the daemon. A process that ends it ends the
// container. A process that connects to it as another user becomes root inside.
var _ = register(
	// The kernel protects PID 1 of a namespace from signals without a handler, including SIGKILL. In gVisor, root's
	// SIGKILL does end it.
	attempts(Case{
		Group: 21, Name: "guest/kill",
		Tries: "send PID 1 every signal, trace it, write to its memory and take its descriptors, as root and as the " +
			"ordinary user",
		Wants: "it lives, or cannot be touched",
	}, asBoth, killGuestAttempts),
	// The socket runs commands as any user without authentication. The permissions of its directory keep the ordinary
	// user out.
	attempts(Case{
		Group: 21, Name: "guest/socket-as-user",
		Tries: "reach the guest's socket as the ordinary user, under its path, through /proc and by abstract names, " +
			"to run commands as root",
		Wants: "no connection is made",
	}, []string{proto.UserDefault}, guestSocketAttempts),
	// Root may connect, since it is root's own container. A frame that announces 4 GiB must not make the guest
	// allocate memory. An abandoned connection must not hold memory forever.
	Case{
		Group: 21, Name: "guest/frames", Inside: true,
		Tries: "as root, send the guest random bytes, frames that announce 4 GiB, endless parts, half frames, wrong " +
			"kinds and deep JSON, and leave 500 connections open",
		Wants: "the guest stays, and the container answers the daemon as before",
		Run:   forgedFrames,
	},
	Case{
		// Root can replace the guest by its own program. So the daemon must treat every answer as hostile, and limit
		// its size and time.
		Group: 21, Name: "guest/impostor", Inside: true,
		Tries: "as root, replace the guest's socket by one that answers the daemon with endless output, frames of 4 " +
			"GiB, nonsense, and silence",
		Wants: "the daemon gives the container up in a bounded time, with a typed error, and others are served meanwhile",
		Run:   impostor,
	},
)

// killGuestAttempts run in a process of the container, so that the rules of its PID namespace apply.
func killGuestAttempts() []attempt {
	var all []attempt
	for n := unix.Signal(1); n < 65; n++ {
		all = append(all, attempt{fmt.Sprintf("signal %d", n), func() error {
			// the guest handles the other signals
			if os.Getuid() == 0 && sentry() && (n == unix.SIGKILL || n == unix.SIGSTOP || n > 31) {
				return moot("root may end its own container there; guest/kill-as-root sees what is told of it")
			}
			if err := unix.Kill(1, n); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond) // a signal that ends PID 1 would end this process, too
			return errors.New("PID 1 lives on")
		}})
	}
	if os.Getuid() != 0 { // root may slow down its own container
		all = append(all, attempt{"its limits", func() error {
			// With four descriptors the guest could not accept connections any more.
			return unix.Prlimit(1, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4, Max: 4}, nil)
		}}, attempt{"its scheduling", func() error { return unix.Setpriority(unix.PRIO_PROCESS, 1, 19) }})
	}
	// Tracing gives full control: a process that writes to the guest's memory runs code as PID 1.
	return append(all,
		attempt{"ptrace", func() error { return unix.PtraceAttach(1) }},
		attempt{"process_vm_readv", func() error {
			buf := make([]byte, 8)
			_, err := unix.ProcessVMReadv(1, []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{
				{Base: 0x400000, Len: 8}}, 0)
			return err
		}},
		attempt{"process_vm_writev", func() error {
			buf := make([]byte, 8)
			_, err := unix.ProcessVMWritev(1, []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{
				{Base: 0x400000, Len: 8}}, 0)
			return err
		}},
		attempt{"/proc/1/mem", func() error { return readable("/proc/1/mem") }},
		attempt{"/proc/1/environ", func() error { return readable("/proc/1/environ") }},
		// A descriptor copied from the guest may be a connection of the daemon.
		attempt{"pidfd_getfd", func() error {
			fd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return err
			}
			_, err = unix.PidfdGetfd(fd, 3, 0)
			return err
		}},
	)
}

// The path is visible in any container, so nothing may depend on its secrecy.
const guestSocket = "/.berth/run/guest.sock"

// guestSocketAttempts try the path, the same file through /proc, and abstract names. Abstract names belong to the
// network namespace and have no permissions.
func guestSocketAttempts() []attempt {
	var all []attempt
	for _, path := range []string{guestSocket, "/proc/1/root" + guestSocket, "/proc/self/root" + guestSocket,
		"@" + guestSocket, "@guest.sock", "@/.berth/run"} {
		all = append(all, attempt{path, func() error {
			conn, err := net.DialTimeout("unix", path, 5*time.Second)
			if err != nil {
				return err
			}
			defer conn.Close()
			// The first byte is the kind of a frame, here a request. An answer would mean access as root.
			if _, err := conn.Write(guestFrame(
				'Q', []byte(`{"op":"exec","command":{"argv":["id"],"user":"root"}}`))); err != nil {
				return err
			}
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
			answer, _ := io.ReadAll(io.LimitReader(conn, 100))
			return through("it answers %q", answer)
		}})
	}
	return all
}

// guestFrame returns one frame of the guest's protocol. Its header is one byte for the kind and a big-endian length
// of four bytes.
func guestFrame(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body))), body...)
}

var _ = addProbe("forge-frames", func([]string) (any, error) { return forgeFrames() })

// forgeFrames sends the guest invalid frames and returns how many connections it made.
func forgeFrames() (int, error) {
	// Deep enough that a decoder without a nesting limit would run out of stack or time.
	deep := strings.Repeat(`[`, 200_000)
	lies := [][]byte{
		// Half headers, a length of 4 GiB, invalid JSON, unknown operations, negative numbers, kinds that do not
		// begin a call, and another protocol.
		{0}, {'Q'}, {'Q', 0xff, 0xff, 0xff, 0xff}, {'Q', 0, 0, 0, 10, '{'}, guestFrame('Q', nil),
		guestFrame('Q', []byte("{")), guestFrame('Q', []byte(deep)),
		guestFrame('Q', []byte(`{"op":"no such thing"}`)), guestFrame('Q', []byte(`{"op":"exec"}`)),
		guestFrame('Q', []byte(`{"op":"exec","pipes":5,"command":{"argv":["id"]}}`)),
		guestFrame('Q', []byte(`{"op":"exec","command":{"argv":[""],"user":"nobody"}}`)),
		guestFrame('Q', []byte(`{"op":"hello","pipes":1}`)),
		guestFrame('Q', []byte(`{"op":"read","path":"`+strings.Repeat("A", 100_000)+`"}`)),
		guestFrame('Q', []byte(`{"op":"list","count":-1,"offset":-9223372036854775808}`)),
		guestFrame('G', []byte{1}), guestFrame('W', nil), guestFrame('K', make([]byte, 100)), guestFrame('Y', nil),
		guestFrame('D', nil), guestFrame('c', nil),
		[]byte(strings.Repeat(string(guestFrame('c', []byte("x"))), 10_000)),
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	}
	made := 0
	for _, lie := range lies {
		conn, err := net.DialTimeout("unix", guestSocket, 5*time.Second)
		if err != nil {
			return made, err
		}
		made++
		// The guest may be waiting for the rest of a frame, which never comes. Do not wait for that.
		_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = conn.Write(lie)
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
		_ = conn.Close()
	}
	// Half a header each, so that the guest keeps waiting on every connection.
	for range 500 { // left open until this program ends
		conn, err := net.DialTimeout("unix", guestSocket, 5*time.Second)
		if err != nil {
			break // no descriptors left, here or in the guest
		}
		_, _ = conn.Write([]byte{'Q', 0})
		made++
	}
	return made, nil
}

// forgedFrames counts as held only if PID 1 is the same process afterwards. A restarted guest would have lost every
// running command.
func forgedFrames(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	// The start time of PID 1 and the inode of its directory differ for another process.
	const boot = "stat -c %Y-%i /proc/1"
	before, err := t.Output(ctx, con.ID, "", boot)
	if err != nil {
		return "", err
	}
	var made int
	if err := t.Probe(ctx, con.ID, proto.UserRoot, "forge-frames", &made); err != nil {
		return "", err
	}
	after, err := t.Output(ctx, con.ID, "", boot)
	if err != nil || after != before {
		return "", Breached("after %d connections PID 1 is %q, not %q: %v", made, after, before, err)
	}
	return fmt.Sprintf("the guest outlived %d connections", made), nil
}

var _ = addProbe("impersonate", func(args []string) (any, error) { return nil, impersonate(args[0]) })

// impersonate takes over the guest's socket path until it is killed. The daemon keeps its existing connections to the
// guest; its next connection comes here.
func impersonate(how string) error {
	const beside = guestSocket + ".new"
	ln, err := net.Listen("unix", beside)
	if err != nil {
		return err
	}
	// The attacker waits for this line before it makes the daemon connect. It is printed first, because the daemon
	// may connect by itself, and then the output of this command is lost.
	fmt.Println("listening")
	if err := os.Rename(beside, guestSocket); err != nil {
		return err
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go answerAs(conn, how)
	}
}

// answerAs answers every request in one hostile way. Each way would harm a client without limits: a length that it
// allocates, bytes in which it searches for a frame, parts that it joins, output that it collects, or silence.
func answerAs(conn net.Conn, how string) {
	defer conn.Close()
	big := make([]byte, 256<<10)
	started, _ := json.Marshal(map[string]any{"pid": 1, "pipes": false})
	for {
		var err error
		switch how {
		case "silence":
			_, err = io.Copy(io.Discard, conn)
		case "huge":
			_, err = conn.Write([]byte{'R', 0xff, 0xff, 0xff, 0xff})
		case "nonsense":
			_, err = conn.Write([]byte(strings.Repeat("\x00\xff{", 1000)))
		case "parts":
			_, err = conn.Write(guestFrame('c', big))
		default: // endless output
			_, _ = conn.Write(guestFrame('S', started))
			for err == nil {
				_, err = conn.Write(guestFrame('O', big))
			}
		}
		if err != nil {
			return
		}
	}
}

// impostorTime limits how long the daemon may take for requests to a lying container.
const impostorTime = 60 * time.Second

// impostor runs a different impostor in each of several containers, and checks another container in between.
func impostor(ctx context.Context, t *Target) (string, error) {
	other, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	var said []string
	// with the last two, the daemon waits until its time limit
	ways := []string{"huge", "nonsense", "parts", "output", "silence"}
	if t.Quick {
		ways = ways[:3]
	}
	for _, how := range ways {
		con, err := t.Container(ctx, proto.CreateContainer{})
		if err != nil {
			return "", err
		}
		if err := t.PutProbe(ctx, con.ID); err != nil {
			return "", err
		}
		e, err := t.Launch(ctx, con.ID, proto.Cmd{Argv: []string{probePath, ProbeCommand, "impersonate", how},
			User: proto.UserRoot})
		if err != nil {
			return "", err
		}
		if line, err := t.firstLine(ctx, con.ID, e.ID); err != nil || line != "listening" {
			return "", fmt.Errorf("the impostor does not listen: %q %w", line, err)
		}
		began := time.Now()
		code, err := t.useImpostor(ctx, con.ID)
		if err != nil {
			return "", fmt.Errorf("against %s: %w", how, err)
		}
		said = append(said, fmt.Sprintf("%s: %s after %.1f s", how, code, time.Since(began).Seconds()))
		// One container must not keep the daemon from serving others.
		if err := t.alive(ctx, other.ID); err != nil {
			return "", err
		}
		if _, err := t.Delete(ctx, con.ID, false); err != nil {
			return "", Breached("the container with the impostor cannot be deleted: %v", err)
		}
	}
	return strings.Join(said, ", "), nil
}

// useImpostor makes requests that need new connections to a container, until they end in any way. It makes three at
// once, so that the daemon must open connections instead of reusing kept ones.
func (t *Target) useImpostor(ctx context.Context, container string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, impostorTime)
	defer cancel()
	code := "answered"
	for range 4 { // kept connections to the real guest may serve the first ones
		res := make(chan error, 3)
		for range 3 {
			go func() {
				e, err := t.Launch(limited, container, proto.Cmd{Argv: []string{"sleep", "0.1"}, TimeoutSeconds: 5})
				if err == nil {
					_, err = t.Wait(limited, container, e.ID)
				}
				res <- err
			}()
		}
		for range 3 {
			switch err := <-res; {
			case limited.Err() != nil && ctx.Err() == nil:
				return "", Breached("the daemon was still busy with it after %v", impostorTime)
			// Internal would mean that the daemon reports the container's attack as its own fault.
			case proto.CodeOf(err) == proto.Internal:
				return "", Breached("the daemon calls it its own fault: %v", err)
			case err != nil:
				code = string(proto.CodeOf(err))
			}
		}
	}
	return code, nil
}

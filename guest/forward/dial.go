package forward

import (
	"errors"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// dialWait bounds a connection to loopback. Loopback answers at once, unless the program's queue is full.
const dialWait = 10 * time.Second

// Dial connects to a port of the container's loopback for the daemon. With handover, the daemon gets the connected
// socket if the kernel lets it out, and conn can be used again. Otherwise conn relays the data until either side has
// ended, and cannot be used again then.
func Dial(conn *wire.Conn, port uint16, handover bool) error {
	call, err := dialLoopback(port)
	if err != nil {
		return conn.SendReply(nil, err)
	}
	if handover && sendSocket(conn, call) == nil {
		return call.Close()
	}
	// gVisor lets descriptors in, but no sockets out: then nothing was sent
	r := newPortForward(conn)
	r.begin(call)
	if err := conn.SendJSON(wire.FrameReply, wire.Dialed{}); err != nil {
		_ = call.Close()
		return err
	}
	return r.run((*portForward).copyOut)
}

// dialLoopback connects to the program that listens on a port, over IPv4 or IPv6.
func dialLoopback(port uint16) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialWait, KeepAlive: -1}
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil, proto.Errorf(proto.Unavailable, "dial", strconv.Itoa(int(port)), "the program that listens on "+
				"port %d accepts no connections", port)
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return nil, proto.Errorf(proto.Unavailable, "dial", strconv.Itoa(int(port)), "the guest has no descriptor "+
				"left for a connection")
		}
	}
	return nil, proto.Errorf(proto.NotFound, "dial", strconv.Itoa(int(port)), "nothing listens on port %d of the "+
		"container", port)
}

// sendSocket hands the connected socket to the daemon.
func sendSocket(conn *wire.Conn, call *net.TCPConn) error {
	raw, err := call.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) {
		sent = conn.SendJSONWith(wire.FrameReply, wire.Dialed{Handover: true}, []int{int(fd)})
	}); err != nil {
		return err
	}
	return sent
}

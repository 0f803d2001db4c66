package guest

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxDescriptors is how many descriptors a message brings at most: both ends of
// stdout and stderr, and stdin.
const maxDescriptors = 5

// rightsBytes is the room for what brings them, in bytes.
const rightsBytes = 64

// keepBuffer is the size up to which an idle connection keeps its buffer. Larger
// ones are given back, since a guest has little memory and many idle connections.
const keepBuffer = 16 << 10

// A conn is a connection with frames on it. One goroutine reads; any may write.
type conn struct {
	net.Conn
	r      *bufio.Reader
	buf    []byte
	broken bool // the reader saw something that ends the use of this connection

	write sync.Mutex // puts frames one after another

	// Descriptors that came with what was read so far. A guest takes them always, a daemon where it asked for one.
	take bool
	fds  []int

	unix    *net.UnixConn     // nil if it is none
	control [rightsBytes]byte // of what was read last
}

// newConn frames c. With take, descriptors sent along are kept in fds.
func newConn(c net.Conn, take bool) *conn {
	w := &conn{Conn: c, take: take}
	w.unix, _ = c.(*net.UnixConn)
	w.r = bufio.NewReaderSize(readerFunc(w.read), readBuffer)
	return w
}

// readBuffer is how much is read at once where it is not a body, in bytes. Descriptors go with that much at most.
const readBuffer = 4 << 10

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// read is net.Conn.Read that does not lose descriptors.
func (c *conn) read(p []byte) (n int, err error) {
	if c.unix == nil || !c.take {
		return c.Conn.Read(p)
	}
	n, controlled, _, _, err := c.unix.ReadMsgUnix(p, c.control[:])
	if err == nil && controlled > 0 {
		c.keep(c.control[:controlled])
	}
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err // it is -1 with an error
}

// keep adds the descriptors of a control message to fds, and closes those too many.
func (c *conn) keep(oob []byte) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if len(c.fds) < maxDescriptors {
				c.fds = append(c.fds, fd)
			} else {
				_ = unix.Close(fd)
			}
		}
	}
}

// descriptors hands over what came with the message that was read last.
func (c *conn) descriptors() []int {
	fds := c.fds
	c.fds = nil
	return fds
}

// next reads one frame, valid until the following one.
func (c *conn) next() (frameKind, []byte, error) {
	kind, body, err := readFrame(c.r, c.buf)
	c.buf = body[:0]
	if err != nil {
		c.broken = true
	}
	return kind, body, err
}

// message reads one frame with the parts before it.
func (c *conn) message(limit int) (frameKind, []byte, error) {
	kind, body, err := readMessage(c.next, limit)
	if err != nil {
		c.broken = true
	}
	return kind, body, err
}

// rest drops what a busy connection needs and an idle one does not.
func (c *conn) rest() {
	if cap(c.buf) > keepBuffer {
		c.buf = nil
	}
}

// wideBytes is how much of a body is on its way at once. The kernel's own 208 KiB have both ends wait for one another
// with every other piece; with this an eighth more of them passes in the same time.
const wideBytes = 1 << 20

// widen makes room for wideBytes, beyond net.core.wmem_max too where the daemon may do that. Without, it is only
// slower.
func (c *conn) widen() {
	if c.unix == nil {
		return
	}
	if raw, err := c.unix.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE,
				wideBytes)
		})
	}
}

// send writes one frame.
func (c *conn) send(kind frameKind, body []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	return c.sendLocked(kind, body)
}

func (c *conn) sendLocked(kind frameKind, body []byte) error {
	var h [headerBytes]byte
	putHeader(&h, kind, len(body))
	if len(body) <= keepBuffer {
		_, err := c.Conn.Write(append(h[:], body...))
		return err
	}
	parts := net.Buffers{h[:], body}
	_, err := parts.WriteTo(c.Conn)
	return err
}

// sendJSON writes v as one message, cut into parts where it is long.
func (c *conn) sendJSON(kind frameKind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	for len(b) > MaxFrame {
		if err := c.sendLocked(framePart, b[:MaxFrame]); err != nil {
			return err
		}
		b = b[MaxFrame:]
	}
	return c.sendLocked(kind, b)
}

// sendRequest writes a request, with descriptors if there are any.
func (c *conn) sendRequest(req *request, fds []int) error {
	if len(fds) == 0 {
		return c.sendJSON(frameRequest, req)
	}
	return c.sendJSONWith(frameRequest, req, fds)
}

// sendJSONWith writes v as one message that descriptors go with.
func (c *conn) sendJSONWith(kind frameKind, v any, fds []int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.sendWith(kind, b, fds)
}

// sendWith writes a message that descriptors go with.
func (c *conn) sendWith(last frameKind, b []byte, fds []int) error {
	if c.unix == nil {
		return errNoDescriptors
	}
	// They travel with the first bytes, so that a short write of a long request can
	// neither separate nor repeat them.
	first := min(len(b), readBuffer-headerBytes)
	kind := framePart
	if first == len(b) {
		kind = last
	}
	var h [headerBytes]byte
	putHeader(&h, kind, first)
	c.write.Lock()
	piece := append(h[:], b[:first]...)
	n, _, err := c.unix.WriteMsgUnix(piece, unix.UnixRights(fds...), nil)
	if err == nil && n < len(piece) {
		_, err = c.Conn.Write(piece[n:])
	}
	c.write.Unlock()
	if err != nil || first == len(b) {
		return err
	}
	return c.sendTail(last, b[first:])
}

// sendTail ends a request that sendWith began.
func (c *conn) sendTail(last frameKind, b []byte) error {
	for len(b) > MaxFrame {
		if err := c.send(framePart, b[:MaxFrame]); err != nil {
			return err
		}
		b = b[MaxFrame:]
	}
	return c.send(last, b)
}

package wire

import (
	"berth/proto"
	"bufio"
	"encoding/json"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxDescriptors is the maximum number of descriptors in a message: both ends of stdout and stderr, and stdin.
const maxDescriptors = 5

// rightsBytes is the size of the control message buffer for descriptors, in bytes.
const rightsBytes = 64

// keepBuffer is the size up to which an idle connection keeps its buffer. Larger buffers are freed, since a guest has
// little memory and many idle connections.
const keepBuffer = 16 << 10

// Conn is a connection that carries frames. One goroutine reads; any goroutine may write.
type Conn struct {
	net.Conn
	Reader *bufio.Reader
	buf    []byte
	Broken bool // the reader saw something that makes the connection unusable

	write sync.Mutex // serializes frames

	// Descriptors that came with the data read so far. A guest always accepts them; a daemon does where it asked for
	// one.
	TakeDescriptors bool
	fds             []int

	UnixConn *net.UnixConn     // nil if the connection is not a unix socket
	control  [rightsBytes]byte // control messages of the last read
}

// NewConn frames c. If take is set, it keeps the descriptors that arrive.
func NewConn(c net.Conn, take bool) *Conn {
	w := &Conn{Conn: c, TakeDescriptors: take}
	w.UnixConn, _ = c.(*net.UnixConn)
	w.Reader = bufio.NewReaderSize(readerFunc(w.read), readBuffer)
	return w
}

// readBuffer is the size of one read outside a body, in bytes. Descriptors travel with at most that much.
const readBuffer = 4 << 10

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// read is net.Conn.Read that keeps descriptors.
func (c *Conn) read(p []byte) (n int, err error) {
	if c.UnixConn == nil || !c.TakeDescriptors {
		return c.Conn.Read(p)
	}
	n, controlled, _, _, err := c.UnixConn.ReadMsgUnix(p, c.control[:])
	if err == nil && controlled > 0 {
		c.keep(c.control[:controlled])
	}
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err // n is -1 with an error
}

// keep stores the descriptors of a control message and closes those above the maximum.
func (c *Conn) keep(oob []byte) {
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

// Descriptors returns the descriptors of the last message and passes their ownership to the caller.
func (c *Conn) Descriptors() []int {
	fds := c.fds
	c.fds = nil
	return fds
}

// ReadFrame reads one frame. The frame is valid until the next call.
func (c *Conn) ReadFrame() (FrameKind, []byte, error) {
	kind, body, err := ReadFrame(c.Reader, c.buf)
	c.buf = body[:0]
	if err != nil {
		c.Broken = true
	}
	return kind, body, err
}

// ReadMessage reads one frame and the parts before it.
func (c *Conn) ReadMessage(limit int) (FrameKind, []byte, error) {
	kind, body, err := readMessage(c.ReadFrame, limit)
	if err != nil {
		c.Broken = true
	}
	return kind, body, err
}

// Trim frees memory that an idle connection does not need.
func (c *Conn) Trim() {
	if cap(c.buf) > keepBuffer {
		c.buf = nil
	}
}

// wideBytes is how much of a body may be in flight. With the kernel's default of 208 KiB both ends wait for each
// other at every other frame. With wideBytes an eighth more data passes in the same time.
const wideBytes = 1 << 20

// Widen raises the socket buffer to wideBytes, beyond net.core.wmem_max too if the daemon has the privilege. Without
// it transfers are only slower.
func (c *Conn) Widen() {
	if c.UnixConn == nil {
		return
	}
	if raw, err := c.UnixConn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE,
				wideBytes)
		})
	}
}

// Send writes one frame.
func (c *Conn) Send(kind FrameKind, body []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	return c.sendLocked(kind, body)
}

func (c *Conn) sendLocked(kind FrameKind, body []byte) error {
	var h [HeaderBytes]byte
	PutHeader(&h, kind, len(body))
	if len(body) <= keepBuffer {
		_, err := c.Conn.Write(append(h[:], body...))
		return err
	}
	parts := net.Buffers{h[:], body}
	_, err := parts.WriteTo(c.Conn)
	return err
}

// SendJSON writes v as one message and cuts a long one into parts.
func (c *Conn) SendJSON(kind FrameKind, v any) error { return c.SendJSONWith(kind, v, nil) }

// SendJSONWith is SendJSON with descriptors. They travel with the first bytes, so that a short write of a long message
// can neither separate nor repeat them.
func (c *Conn) SendJSONWith(kind FrameKind, v any, fds []int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	if len(fds) > 0 {
		first := min(len(b), readBuffer-HeaderBytes)
		if first == len(b) {
			return c.sendDescriptors(kind, b, fds)
		}
		if err := c.sendDescriptors(FramePart, b[:first], fds); err != nil {
			return err
		}
		b = b[first:]
	}
	for len(b) > MaxFrame {
		if err := c.sendLocked(FramePart, b[:MaxFrame]); err != nil {
			return err
		}
		b = b[MaxFrame:]
	}
	return c.sendLocked(kind, b)
}

// sendDescriptors writes one short frame with descriptors. Called with write held.
func (c *Conn) sendDescriptors(kind FrameKind, body []byte, fds []int) error {
	if c.UnixConn == nil {
		return errNoDescriptors
	}
	var h [HeaderBytes]byte
	PutHeader(&h, kind, len(body))
	frame := append(h[:], body...)
	n, _, err := c.UnixConn.WriteMsgUnix(frame, unix.UnixRights(fds...), nil)
	if err == nil && n < len(frame) {
		_, err = c.Conn.Write(frame[n:])
	}
	return err
}

// SendReply writes the answer to a request: v, or err if it is not nil.
func (c *Conn) SendReply(v any, err error) error {
	if err != nil {
		return c.SendJSON(FrameError, proto.AsError(err))
	}
	return c.SendJSON(FrameReply, v)
}

// SendRequest writes a request, with descriptors if there are any.
func (c *Conn) SendRequest(req *Request, fds []int) error {
	return c.SendJSONWith(FrameRequest, req, fds)
}

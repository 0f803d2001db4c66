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

// maxDescriptors is how many descriptors a message brings at most: both ends of
// stdout and stderr, and stdin.
const maxDescriptors = 5

// rightsBytes is the room for what brings them, in bytes.
const rightsBytes = 64

// keepBuffer is the size up to which an idle connection keeps its buffer. Larger
// ones are given back, since a guest has little memory and many idle connections.
const keepBuffer = 16 << 10

// A conn is a connection with frames on it. One goroutine reads; any may write.
type Conn struct {
	net.Conn
	Reader *bufio.Reader
	buf    []byte
	Broken bool // the reader saw something that ends the use of this connection

	write sync.Mutex // puts frames one after another

	// Descriptors that came with what was read so far. A guest takes them always, a daemon where it asked for one.
	TakeDescriptors bool
	fds             []int

	UnixConn *net.UnixConn     // nil if it is none
	control  [rightsBytes]byte // of what was read last
}

// NewConn frames c. With take, descriptors sent along are kept in fds.
func NewConn(c net.Conn, take bool) *Conn {
	w := &Conn{Conn: c, TakeDescriptors: take}
	w.UnixConn, _ = c.(*net.UnixConn)
	w.Reader = bufio.NewReaderSize(readerFunc(w.read), readBuffer)
	return w
}

// readBuffer is how much is read at once where it is not a body, in bytes. Descriptors go with that much at most.
const readBuffer = 4 << 10

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// read is net.Conn.Read that does not lose descriptors.
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
	return max(n, 0), err // it is -1 with an error
}

// keep adds the descriptors of a control message to fds, and closes those too many.
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

// Descriptors hands over what came with the message that was read last.
func (c *Conn) Descriptors() []int {
	fds := c.fds
	c.fds = nil
	return fds
}

// ReadFrame reads one frame, valid until the following one.
func (c *Conn) ReadFrame() (FrameKind, []byte, error) {
	kind, body, err := ReadFrame(c.Reader, c.buf)
	c.buf = body[:0]
	if err != nil {
		c.Broken = true
	}
	return kind, body, err
}

// ReadMessage reads one frame with the parts before it.
func (c *Conn) ReadMessage(limit int) (FrameKind, []byte, error) {
	kind, body, err := readMessage(c.ReadFrame, limit)
	if err != nil {
		c.Broken = true
	}
	return kind, body, err
}

// Trim drops what a busy connection needs and an idle one does not.
func (c *Conn) Trim() {
	if cap(c.buf) > keepBuffer {
		c.buf = nil
	}
}

// wideBytes is how much of a body is on its way at once. The kernel's own 208 KiB have both ends wait for one another
// with every other piece; with this an eighth more of them passes in the same time.
const wideBytes = 1 << 20

// Widen makes room for wideBytes, beyond net.core.wmem_max too where the daemon may do that. Without, it is only
// slower.
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

// SendJSON writes v as one message, cut into parts where it is long.
func (c *Conn) SendJSON(kind FrameKind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	for len(b) > MaxFrame {
		if err := c.sendLocked(FramePart, b[:MaxFrame]); err != nil {
			return err
		}
		b = b[MaxFrame:]
	}
	return c.sendLocked(kind, b)
}

// SendReply writes the answer to a request: v, or err if there is one.
func (c *Conn) SendReply(v any, err error) error {
	if err != nil {
		return c.SendJSON(FrameError, proto.AsError(err))
	}
	return c.SendJSON(FrameReply, v)
}

// SendRequest writes a request, with descriptors if there are any.
func (c *Conn) SendRequest(req *Request, fds []int) error {
	if len(fds) == 0 {
		return c.SendJSON(FrameRequest, req)
	}
	return c.SendJSONWith(FrameRequest, req, fds)
}

// SendJSONWith writes v as one message that descriptors go with.
func (c *Conn) SendJSONWith(kind FrameKind, v any, fds []int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.sendWith(kind, b, fds)
}

// sendWith writes a message that descriptors go with.
func (c *Conn) sendWith(last FrameKind, b []byte, fds []int) error {
	if c.UnixConn == nil {
		return errNoDescriptors
	}
	// They travel with the first bytes, so that a short write of a long request can
	// neither separate nor repeat them.
	first := min(len(b), readBuffer-HeaderBytes)
	kind := FramePart
	if first == len(b) {
		kind = last
	}
	var h [HeaderBytes]byte
	PutHeader(&h, kind, first)
	c.write.Lock()
	piece := append(h[:], b[:first]...)
	n, _, err := c.UnixConn.WriteMsgUnix(piece, unix.UnixRights(fds...), nil)
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
func (c *Conn) sendTail(last FrameKind, b []byte) error {
	for len(b) > MaxFrame {
		if err := c.Send(FramePart, b[:MaxFrame]); err != nil {
			return err
		}
		b = b[MaxFrame:]
	}
	return c.Send(last, b)
}

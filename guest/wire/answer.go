package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"berth/proto"

	"golang.org/x/sys/unix"
)

// Maximum time that the guest may take if the caller's context sets no shorter limit.
const (
	ShortWait = 30 * time.Second // for an answer that needs no work, and between two frames of a body
	LongWait  = 10 * time.Minute // for an answer that may walk a large tree
)

// Bounds of an answer: its size in bytes, and the number of its JSON parts. A file's text for the editor may need the
// full size as JSON. Each part takes far more memory than its three bytes. The longest list that a guest sends in one
// message, the editor's, has a third of that number.
const (
	MaxReply = 64 << 20
	MaxParts = 300_000
)

var errNoDescriptors = errors.New("this connection carries no descriptors")

// Alive reports whether the other side of an idle connection is still there and silent.
func (c *Conn) Alive() bool {
	if c.UnixConn == nil {
		return true
	}
	raw, err := c.UnixConn.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		silent = err == unix.EAGAIN
	})
	return err == nil && silent
}

// Bound sets a limit on operations on the connection: the end of ctx, or wait. The returned function removes the
// limit and reports whether it had not yet expired.
func (c *Conn) Bound(ctx context.Context, wait time.Duration) func() bool {
	_ = c.SetDeadline(time.Now().Add(wait))
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() bool {
		if !stop() {
			return false
		}
		return c.SetDeadline(time.Time{}) == nil
	}
}

// Within runs fn, bounded by ctx and by wait. If fn succeeds and the bound then expires, the result is still a
// success, but c can no longer be used.
func (c *Conn) Within(ctx context.Context, wait time.Duration, fn func(*Conn) error) error {
	release := c.Bound(ctx, wait)
	err := fn(c)
	if !release() {
		c.Broken = true
	}
	return err
}

// Unbound removes a bound and returns err. If the bound has already expired, c can no longer be used, and Unbound
// returns an error even if err is nil.
func (c *Conn) Unbound(release func() bool, err error) error {
	if release() {
		return err
	}
	c.Broken = true
	if err == nil {
		err = Fail(c, os.ErrDeadlineExceeded)
	}
	return err
}

// ReadReply reads the answer to a request: R into v, or X as an error.
func (c *Conn) ReadReply(v any) error { return c.ReadReplyWithin(MaxReply, v) }

// ReadReplyWithin is ReadReply for an answer of at most most bytes.
func (c *Conn) ReadReplyWithin(most int, v any) error {
	kind, body, err := c.ReadMessage(most)
	if err != nil {
		return Fail(c, err)
	}
	switch kind {
	case FrameError:
		return c.ReadError(body)
	case FrameReply:
		if v == nil {
			return nil
		}
		if !fewParts(body) {
			return Fail(c, ErrFrame)
		}
		if err := Decode(body, v); err != nil {
			return Fail(c, err)
		}
		return nil
	}
	return Fail(c, ErrFrame)
}

// fewParts reports whether JSON has at most maxParts commas and opening brackets outside strings.
func fewParts(b []byte) bool {
	parts := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case ',', '[', '{':
			if parts++; parts > MaxParts {
				return false
			}
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		}
	}
	return true
}

// ReadError reads the guest's error. It cuts and cleans the text, because the text appears in answers and logs.
func (c *Conn) ReadError(body []byte) error {
	var e proto.Error
	if err := Decode(body, &e); err != nil {
		return Fail(c, err)
	}
	if !knownCode[e.Code] {
		e.Code = proto.Unavailable
	}
	e.Op, e.Item, e.Message = CleanText(e.Op, 64), CleanText(e.Item, 4096), CleanText(e.Message, 64<<10)
	return &e
}

// Fail marks w as unusable and returns the error for its user.
func Fail(w *Conn, err error) error {
	w.Broken = true
	switch {
	case errors.Is(err, ErrFrame):
		return proto.Errorf(proto.Unavailable, "guest", "",
			"the container's guest sent an invalid answer; restart the container")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return proto.Errorf(proto.Unavailable, "guest", "", "the container's guest does not answer; try again, or "+
			"restart the container")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), PeerGone(err):
		return proto.Errorf(proto.Unavailable, "guest", "", "the container's guest went away")
	}
	return proto.Errorf(proto.Unavailable, "guest", "", "lost the container's guest")
}

// ExtendDeadline moves a deadline, but not past the end of ctx.
func (c *Conn) ExtendDeadline(ctx context.Context, set func(time.Time) error, wait time.Duration) {
	_ = set(time.Now().Add(wait))
	if ctx.Err() != nil {
		_ = set(time.Unix(1, 0)) // ctx may have ended before the line above
	}
}

// knownCode holds the codes that a guest may send. Only the daemon itself uses Unauthenticated and Expired.
var knownCode = map[proto.Code]bool{
	proto.InvalidArgument: true, proto.PermissionDenied: true, proto.NotFound: true,
	proto.AlreadyExists: true, proto.Conflict: true, proto.TooLarge: true, proto.TooMany: true,
	proto.QuotaExceeded: true, proto.Unavailable: true, proto.Unsupported: true,
	proto.Canceled: true, proto.Internal: true,
}

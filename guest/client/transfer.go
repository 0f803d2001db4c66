package client

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"berth/guest/wire"
	"berth/proto"
)

// download is the body of an answer. It holds a connection until it is closed.
type download struct {
	c    *Client
	ctx  context.Context
	w    *wire.Conn
	stop func() bool
	left int64 // remaining bytes, or -1 if the length is unknown
	rest []byte
	err  error // sticky; io.EOF after the end
	// of an archive that has ended
	unread *proto.Unread
}

// download sends req and returns the body once the head of the answer is there. Only the head has a short time limit.
// A body may take as long as data keep coming.
func (c *Client) download(ctx context.Context, req *wire.Request, head any) (*download, error) {
	w, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	return c.downloadOn(ctx, w, req, head)
}

// downloadOn does the work of download on a connection.
func (c *Client) downloadOn(ctx context.Context, w *wire.Conn, req *wire.Request, head any) (d *download, err error) {
	release := w.Bound(ctx, wire.ShortWait)
	w.TakeDescriptors = req.Handover
	if err = w.SendRequest(req, nil); err != nil {
		err = wire.Fail(w, err)
	} else {
		err = w.ReadReply(head)
	}
	w.TakeDescriptors = false
	if err = w.Unbound(release, err); err != nil {
		c.put(w)
		return nil, preferContextError(ctx, err)
	}
	d = &download{c: c, ctx: ctx, w: w}
	// A deadline in the past wakes a read in progress. Closing the connection would do so too, but would make it
	// unusable.
	d.stop = context.AfterFunc(ctx, func() { _ = w.SetDeadline(time.Unix(1, 0)) })
	return d, nil
}

// Read returns the next bytes of the body. It buffers one frame and reads the next frame when that is used up.
func (d *download) Read(p []byte) (int, error) {
	for len(d.rest) == 0 && d.err == nil {
		d.err = preferContextError(d.ctx, d.fill())
	}
	if len(d.rest) == 0 {
		return 0, d.err
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// WriteTo copies the rest of the body without a further buffer.
func (d *download) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		if len(d.rest) > 0 {
			n, err := w.Write(d.rest)
			total += int64(n)
			d.rest = d.rest[n:]
			if err != nil {
				return total, err
			}
		}
		if d.err != nil {
			if d.err == io.EOF {
				return total, nil
			}
			return total, d.err
		}
		d.err = preferContextError(d.ctx, d.fill())
	}
}

// fill reads the next frame of the body. The time limit applies to each frame: it ends a silent guest, not a slow
// one.
func (d *download) fill() error {
	// The client does not trust the guest's sizes. A body that is longer or shorter than announced breaks the
	// connection, because the start of the next answer is unknown.
	d.w.ExtendDeadline(d.ctx, d.w.SetReadDeadline, wire.ShortWait)
	kind, body, err := d.w.ReadMessage(wire.MaxReply)
	if err != nil {
		return wire.Fail(d.w, err)
	}
	switch kind {
	case wire.FrameBody:
		if d.left >= 0 {
			if d.left -= int64(len(body)); d.left < 0 {
				return wire.Fail(d.w, wire.ErrFrame)
			}
		}
		d.rest = body
		return nil
	case wire.FrameClose:
		if d.left > 0 {
			return wire.Fail(d.w, wire.ErrFrame)
		}
		if d.left < 0 && len(body) > 0 && !d.packed(body) {
			return wire.Fail(d.w, wire.ErrFrame)
		}
		return io.EOF
	case wire.FrameError:
		return d.w.ReadError(body)
	}
	return wire.Fail(d.w, wire.ErrFrame)
}

// packed reads what the guest says at the end of an archive.
func (d *download) packed(body []byte) bool {
	var p wire.Packed
	if len(body) > maxPacked || wire.Decode(body, &p) != nil {
		return false
	}
	unread, ok := p.Lacks()
	d.unread = &unread
	return ok
}

// maxPacked is more than the length of any wire.Packed, in bytes.
const maxPacked = 64 << 10

// Close gives the connection back. If the body was not read to its end, Close closes the connection, because the rest
// would be mistaken for the next answer.
func (d *download) Close() error {
	if d.w == nil {
		return nil
	}
	var said *proto.Error
	if d.err != io.EOF && !errors.As(d.err, &said) || !d.stop() {
		d.w.Broken = true
	}
	_ = d.w.SetDeadline(time.Time{})
	d.c.put(d.w)
	d.w, d.rest = nil, nil
	if d.err == nil || d.err == io.EOF {
		d.err = os.ErrClosed
	}
	return nil
}

// upload sends req, then body when the guest agrees, and reads the answer. It waits for the agreement so that a
// refusal costs no upload.
func (c *Client) upload(ctx context.Context, req *wire.Request, body io.Reader, answer any) error {
	w, err := c.get(ctx)
	if err != nil {
		return err
	}
	defer c.put(w)
	release := w.Bound(ctx, wire.ShortWait)
	if err = w.SendRequest(req, nil); err != nil {
		err = wire.Fail(w, err)
	} else {
		err = w.ReadReply(nil)
	}
	if !release() {
		w.Broken = true
	}
	if err != nil {
		return preferContextError(ctx, err)
	}
	w.Widen()
	stop := context.AfterFunc(ctx, func() { _ = w.SetDeadline(time.Unix(1, 0)) })
	err = c.sendUpload(ctx, w, body, answer)
	if !stop() {
		w.Broken = true
	}
	_ = w.SetDeadline(time.Time{})
	return preferContextError(ctx, err)
}

// sendUpload sends the body while it listens for an early answer. For example, the disk may be full, and the rest
// need not be sent. After an early answer, or if the body cannot be read, the connection is unusable.
func (c *Client) sendUpload(ctx context.Context, w *wire.Conn, body io.Reader, answer any) error {
	answered := make(chan error, 1)
	// The goroutine ends with the answer or with the connection. One of them comes on every path below.
	go func() { answered <- w.ReadReply(answer) }()
	sendErr := sendBody(ctx, w, body, answered)
	if sendErr == nil {
		w.ExtendDeadline(ctx, w.SetReadDeadline, wire.LongWait)
		return <-answered
	}
	var early *earlyError
	if errors.As(sendErr, &early) {
		w.Broken = true
		return early.err
	}
	// The guest undoes a started upload when the connection ends.
	_ = w.Close()
	err := <-answered
	w.Broken = true
	var unread *bodyError
	if errors.As(sendErr, &unread) {
		return unread.err
	}
	return err
}

// An earlyError carries an answer that came before the body was sent. A bodyError carries an error of the caller's
// reader.
type (
	earlyError struct{ err error }
	bodyError  struct{ err error }
)

func (e *earlyError) Error() string { return "answered early" }
func (e *bodyError) Error() string  { return "reading the body" }

// sendBody sends body in pieces and then its end. Between two pieces it checks for an early answer without waiting.
func sendBody(ctx context.Context, w *wire.Conn, body io.Reader, answered <-chan error) error {
	buf := make([]byte, wire.BodyBytes)
	for {
		n, err := fill(body, buf)
		select {
		case e := <-answered:
			if e == nil {
				e = wire.Fail(w, wire.ErrFrame)
			}
			return &earlyError{e}
		default:
		}
		if n > 0 {
			w.ExtendDeadline(ctx, w.SetWriteDeadline, wire.ShortWait)
			if err := w.Send(wire.FrameBody, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return w.Send(wire.FrameClose, nil)
		case err != nil:
			return &bodyError{err}
		}
	}
}

// fill reads until buf is full or body ends. Unlike io.ReadFull it does not confuse the reader's own
// io.ErrUnexpectedEOF, which means that the upload was cut off, with a body that just ended.
func fill(body io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = body.Read(buf[n:])
		n += m
	}
	return n, err
}

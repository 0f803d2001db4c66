package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"berth/guest/wire"
	"berth/proto"
)

// A large file that is read leaves the container as a descriptor, where descriptors can cross: its bytes make no way
// through the guest and its socket, and the daemon's kernel can send them to a client by itself. Who may read it was
// decided when the guest opened it.

// passesFiles reports whether a file may be asked for as a descriptor. A guest of before knows nothing of that, and
// sends its content.
func (c *Client) passesFiles() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pipes >= supported
}

// receive takes the file that came instead of a body, and gives the connection back.
func (d *download) receive(req *wire.Request, head *wire.Opened) (io.ReadCloser, error) {
	fds := d.w.Descriptors()
	defer func() { wire.CloseAll(fds) }()
	err := preferContextError(d.ctx, d.fill())
	c, ctx := d.c, d.ctx
	switch {
	case err == io.EOF:
		d.err = err
	case err == nil:
		err = wire.Fail(d.w, wire.ErrFrame) // a body after all
	}
	if err == io.EOF && (!req.Handover || len(fds) != 1 || !wire.CanHandOver(fds[0])) {
		err = wire.Fail(d.w, wire.ErrFrame)
	}
	_ = d.Close()
	if err != io.EOF {
		return nil, err
	}
	f := os.NewFile(uintptr(fds[0]), head.Info.Path)
	fds = nil
	if _, err := f.Seek(req.Offset, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, wire.FileError(wire.OpRead, head.Info.Path, err)
	}
	return c.hold(&HandedFile{c: c, ctx: ctx, f: f, path: head.Info.Path, left: head.Length})
}

// A handed is a part of a file that was handed over. It is closed with its Client, as connections are.
type HandedFile struct {
	c    *Client
	ctx  context.Context
	stop func() bool
	f    *os.File
	path string
	left int64
}

// hold counts h as open.
func (c *Client) hold(h *HandedFile) (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = h.f.Close()
		return nil, beingStopped()
	}
	c.live[h.f] = struct{}{}
	h.stop = context.AfterFunc(h.ctx, func() { _ = h.f.Close() })
	return h, nil
}

// Close may be called again.
func (h *HandedFile) Close() error {
	h.stop()
	h.c.mu.Lock()
	delete(h.c.live, h.f)
	h.c.mu.Unlock()
	_ = h.f.Close()
	return nil
}

func (h *HandedFile) Read(p []byte) (int, error) {
	if err := h.ctx.Err(); err != nil {
		return 0, err
	}
	if h.left == 0 {
		return 0, io.EOF
	}
	n, err := h.f.Read(p[:min(int64(len(p)), h.left)])
	h.left -= int64(n)
	if err != nil {
		err = h.said(err)
	}
	return n, err
}

// WriteTo gives w the file itself, limited, since that is what a connection can have the kernel send.
func (h *HandedFile) WriteTo(w io.Writer) (int64, error) {
	if err := h.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := io.Copy(w, &io.LimitedReader{R: h.f, N: h.left})
	h.left -= n
	var unread *fs.PathError
	switch {
	case err == nil && h.left > 0:
		err = h.said(io.EOF)
	case errors.As(err, &unread):
		err = h.said(err)
	}
	return n, err
}

// said is what a failed read, or the end of the file before that of the part, is told as.
func (h *HandedFile) said(err error) error {
	switch {
	case h.ctx.Err() != nil:
		return h.ctx.Err()
	case err == io.EOF:
		return wire.FileShrunk(h.path)
	case errors.Is(err, os.ErrClosed):
		return beingStopped()
	}
	return wire.FileError(wire.OpRead, h.path, err)
}

// beingStopped is for what is asked of a Client that is closed, or was under way then.
func beingStopped() error {
	return proto.Errorf(proto.Unavailable, "guest", "", "the container is being stopped")
}

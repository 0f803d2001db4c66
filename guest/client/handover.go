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

// A large file that is read leaves the container as a descriptor, if descriptors can cross. Its bytes do not pass
// through the guest and its socket, and the daemon's kernel can send them to a client directly. The permission check
// happened when the guest opened the file.

// passesFiles reports whether the client may request a file as a descriptor. An older guest does not support that and
// sends the content.
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
		err = wire.Fail(d.w, wire.ErrFrame) // a body came after all
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

// HandedFile is a part of a handed-over file. Its Client closes it, as it closes connections.
type HandedFile struct {
	c    *Client
	ctx  context.Context
	stop func() bool
	f    *os.File
	path string
	left int64
}

// hold registers h as open.
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

// Close may be called more than once.
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

// WriteTo passes w the file itself, limited, so that the kernel can send it to a connection.
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

// said returns the error for a failed read, or for a file that ends before the part does.
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

// beingStopped returns the error for a request to a closed Client, or one that was running at the close.
func beingStopped() error {
	return proto.Errorf(proto.Unavailable, "guest", "", "the container is being stopped")
}

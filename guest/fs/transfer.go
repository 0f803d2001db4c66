package fs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/fs/archive"
	"berth/guest/output"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// read sends a part of a file.
func (k *handler) read(id user.User, req *wire.Request, path string) error {
	open := func() (*os.File, *unix.Stat_t, error) { return access.OpenAs(id, path, unix.O_RDONLY) }
	if req.NoLinks {
		open = func() (*os.File, *unix.Stat_t, error) { return k.s.OpenFile(id, path) }
	}
	if req.NoLinks && req.Follow {
		open = func() (*os.File, *unix.Stat_t, error) { return k.s.FollowFile(id, path) }
	}
	f, st, err := open()
	if err != nil {
		return k.conn.SendReply(nil, wire.FileError(wire.OpRead, path, err))
	}
	defer f.Close()
	if req.Offset < 0 {
		return k.conn.SendReply(nil, proto.Errorf(proto.InvalidArgument, wire.OpRead, path, "the offset is negative"))
	}
	length := max(0, st.Size-req.Offset)
	if req.Count >= 0 {
		length = min(length, req.Count)
	}
	head := wire.Opened{Info: access.Info(path, st), Length: length}
	if req.Handover && length >= handoverBytes && wire.CanHandOver(int(f.Fd())) {
		return k.handOver(f, head)
	}
	if err := k.conn.SendJSON(wire.FrameReply, head); err != nil {
		return err
	}
	switch err := k.send(io.NewSectionReader(f, req.Offset, length), length); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return k.conn.SendReply(nil, wire.FileShrunk(path))
	case err != nil:
		return err
	}
	return k.conn.Send(wire.FrameClose, nil)
}

// send sends length bytes as a body.
func (k *handler) send(r io.Reader, length int64) error {
	buf := output.NewBuffer()
	defer buf.Free()
	for length > 0 {
		b := buf.Data()[:min(length, output.BufferBytes)]
		if _, err := io.ReadFull(r, b); err != nil {
			return wire.UnexpectedEOF(err)
		}
		if err := k.conn.Send(wire.FrameBody, b); err != nil {
			return err
		}
		length -= int64(len(b))
	}
	return nil
}

// handoverBytes is the length from which a handover costs less than frames.
const handoverBytes = wire.BodyBytes

// handOver answers a read with the file itself.
func (k *handler) handOver(f *os.File, head wire.Opened) error {
	head.Handover = true
	if err := k.conn.SendJSONWith(wire.FrameReply, head, []int{int(f.Fd())}); err != nil {
		return err
	}
	return k.conn.Send(wire.FrameClose, nil)
}

// write receives a file.
func (k *handler) write(id user.User, req *wire.Request, path string) error {
	if req.Write.InPlace != nil {
		return k.writeInPlace(id, req, path)
	}
	in, err := k.s.Create(id, path, req.Write)
	if err != nil {
		return k.conn.SendReply(nil, err)
	}
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		in.Drop()
		return err
	}
	b := &body{conn: k.conn}
	if _, err := io.Copy(in, b); err != nil {
		in.Drop()
		return b.fail(k, wire.FileError(wire.OpWrite, path, err))
	}
	return k.conn.SendReply(in.Commit())
}

// writeInPlace receives bytes and writes them into a file as they come. A full disk leaves the file as long as it was.
// If the length of the body is known, the space is taken before the first byte. If it is not, and the body goes over
// bytes that the file has, the whole body is received before the first byte is written.
func (k *handler) writeInPlace(id user.User, req *wire.Request, path string) error {
	in := req.Write.InPlace
	if in.Offset < 0 || in.Append && (in.Offset > 0 || in.Truncate) {
		return k.conn.SendReply(nil, proto.Errorf(proto.InvalidArgument, wire.OpWrite, "offset", "an offset must not "+
			"be negative, and append allows neither offset nor truncate"))
	}
	f, err := access.OpenInPlace(id, path, req.Write.Mode, in)
	if err != nil {
		return k.conn.SendReply(nil, err)
	}
	defer f.Close()
	err = f.Reserve(req.Write.Size)
	if err == nil {
		err = f.SetAttributes(in.Attributes)
	}
	if err != nil {
		f.Undo(0)
		return k.conn.SendReply(nil, wire.FileError(wire.OpWrite, path, err))
	}
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		f.Undo(0)
		return err
	}
	return k.receiveInPlace(f, req.Write, path)
}

func (k *handler) receiveInPlace(f *access.InPlace, opt wire.WriteOptions, path string) error {
	b := &body{conn: k.conn}
	var n int64
	var err error
	if opt.Size <= 0 && f.Overwrites() {
		n, err = receiveSpooled(f, b, path)
	} else {
		n, err = b.WriteTo(f)
	}
	if opt.Size > 0 && n < opt.Size {
		f.Release()
	}
	if err == nil && opt.InPlace.Truncate {
		err = f.Truncate(opt.InPlace.Offset + n)
	}
	if proto.IsDiskFull(err) {
		f.Undo(n)
	}
	if err != nil {
		return b.fail(k, wire.FileError(wire.OpWrite, path, err))
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err != nil {
		return k.conn.SendReply(nil, wire.FileError(wire.OpWrite, path, err))
	}
	return k.conn.SendReply(access.Info(path, &st), nil)
}

// receiveSpooled receives a whole body and then writes it into a file. It returns how much it has written.
func receiveSpooled(f *access.InPlace, b *body, path string) (int64, error) {
	spool, err := f.Spool(path)
	if err != nil {
		return 0, err
	}
	defer spool.Close()
	n, err := b.WriteTo(spool)
	if err == nil {
		err = f.Reserve(n)
	}
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		return 0, err
	}
	return io.Copy(f.File, spool)
}

// errCaller wraps errors of the connection, to distinguish them from errors of files.
var errCaller = errors.New("sending to the daemon")

// tar sends a directory as an archive.
func (k *handler) tar(id user.User, dir string, noLinks bool) error {
	var d *os.File
	err := id.Do(func() (err error) {
		if noLinks {
			d, err = k.s.OpenDir(dir)
		} else {
			d, err = access.OpenDir(unix.AT_FDCWD, dir, true)
		}
		return err
	})
	if err != nil {
		return k.conn.SendReply(nil, wire.FileError(wire.OpTar, dir, err))
	}
	defer d.Close()
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		return err
	}
	out := bufio.NewWriterSize(bodyWriter{k.conn}, wire.BodyBytes)
	unread, err := archive.Pack(out, id, d, dir)
	if err != nil && !errors.Is(err, errCaller) {
		return k.conn.SendReply(nil, wire.FileError(wire.OpTar, dir, err))
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	return k.conn.SendJSON(wire.FrameClose, wire.NewPacked(unread))
}

// bodyWriter sends what is written to it as frames.
type bodyWriter struct{ conn *wire.Conn }

func (w bodyWriter) Write(b []byte) (int, error) {
	for sent := 0; sent < len(b); {
		n := min(len(b)-sent, wire.MaxFrame)
		if err := w.conn.Send(wire.FrameBody, b[sent:sent+n]); err != nil {
			return sent, fmt.Errorf("%w: %v", errCaller, err)
		}
		sent += n
	}
	return len(b), nil
}

// untar receives an archive. The reply before the body tells the client to continue. So a directory that cannot be made
// is reported before the client sends anything.
func (k *handler) untar(id user.User, req *wire.Request, dir string) error {
	u, err := archive.NewUnpacker(id, dir, req.Untar)
	if err != nil {
		return k.conn.SendReply(nil, wire.FileError(wire.OpUntar, dir, err))
	}
	defer u.Close()
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		return err
	}
	b := &body{conn: k.conn}
	if err := u.Unpack(b); err != nil {
		return b.fail(k, err)
	}
	// A tar ends with zeros up to the writer's block size, often 10 KiB. Unread, they would be mistaken for the next
	// request.
	for b.err == nil {
		b.rest = nil
		b.fill()
	}
	if b.err != io.EOF {
		return b.err
	}
	return k.conn.SendReply(nil, nil)
}

// body reads the frames of an upload.
type body struct {
	conn *wire.Conn
	rest []byte
	err  error // of the connection, or io.EOF at the end
}

// Read gives the next bytes.
func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err == nil {
			b.fill()
		}
		if b.err != nil {
			return 0, b.err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// WriteTo copies without a further buffer.
func (b *body) WriteTo(w io.Writer) (total int64, err error) {
	for {
		n, err := w.Write(b.rest)
		total += int64(n)
		b.rest = b.rest[n:]
		if err != nil {
			return total, err
		}
		if b.err == nil {
			b.fill()
		}
		if b.err == io.EOF {
			return total, nil
		}
		if b.err != nil {
			return total, b.err
		}
	}
}

// fill reads the next frame.
func (b *body) fill() {
	kind, payload, err := b.conn.ReadFrame()
	switch {
	case err != nil:
		b.err = wire.UnexpectedEOF(err)
	case kind == wire.FrameClose:
		b.err = io.EOF
	case kind == wire.FrameBody:
		b.rest = payload
	default:
		b.err = wire.ErrFrame
	}
}

// fail ends an upload that cannot continue. If the connection is usable, fail tells the daemon why, and discards the
// data that the daemon sends until it receives that.
func (b *body) fail(k *handler, why error) error {
	if b.err != nil && b.err != io.EOF {
		return b.err
	}
	if err := k.conn.SendReply(nil, why); err != nil {
		return err
	}
	b.rest = nil
	for b.err == nil {
		b.fill()
	}
	if b.err != io.EOF {
		return b.err
	}
	return nil
}

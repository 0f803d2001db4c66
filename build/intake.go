package build

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"berth/proto"
)

// openContext returns the tar of a body. It reads the first header and refuses what is no tar, before anything starts.
func openContext(body io.Reader) (io.ReadCloser, error) {
	plain, err := decompressed(bufio.NewReaderSize(body, 64<<10))
	if err != nil {
		return nil, contextUnread(err)
	}
	var head bytes.Buffer
	n, err := io.CopyN(&head, plain, tarBlock)
	switch {
	case err == nil:
		err = checkTarHead(head.Bytes())
	case err != io.EOF:
		err = contextUnread(err)
	case n == 0:
		err = proto.Invalid("context", "the body must be the build context: %s.", contextForm)
	default:
		err = proto.Invalid("context", "the build context has %d bytes, and is no tar; send %s.", n, contextForm)
	}
	if err != nil {
		_ = plain.Close()
		return nil, err
	}
	return &openedContext{io.MultiReader(&head, plain), plain}, nil
}

const (
	tarBlock    = 512 // bytes of a header
	contextForm = "a tar with the Dockerfile, which may be compressed with gzip or zstd"
)

// checkTarHead refuses a block that no tar begins with. An empty tar begins with zeros.
func checkTarHead(block []byte) error {
	if _, err := tar.NewReader(bytes.NewReader(block)).Next(); errors.Is(err, tar.ErrHeader) {
		return proto.Invalid("context", "the build context is no tar: it begins with %.40q; send %s.",
			bytes.TrimRight(block[:min(len(block), 16)], "\x00"), contextForm)
	}
	return nil
}

// An openedContext reads a tar from its first byte on.
type openedContext struct {
	io.Reader
	io.Closer
}

// storeContext stores a build context without compression. Nothing of it is unpacked: the builder reads the tar in
// place.
func storeContext(ctx context.Context, path string, plain io.Reader, most int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(whileWanted{ctx, plain}, most+1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return contextUnread(err)
	case n > most:
		return proto.Errorf(proto.TooLarge, "build", "context", "the build context has more than %d MiB unpacked; "+
			"leave out with a .dockerignore what the build does not need", most>>20)
	}
	if err := checkTar(f); err != nil {
		return err
	}
	return f.Close()
}

// checkTar reads the headers of a tar.
func checkTar(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for tr, n := tar.NewReader(f), 0; ; n++ {
		switch _, err := tr.Next(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return proto.Invalid("context", "the build context is no whole tar: after %d members: %v.", n, err)
		}
	}
}

func contextUnread(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("storing the build context: %w", err)
	}
	return proto.Invalid("context", "the build context cannot be read: %v.", err)
}

// decompressed returns the tar in a stream, which it tells by its first bytes.
func decompressed(in *bufio.Reader) (io.ReadCloser, error) {
	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(in)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		const window = 128 << 20 // the most memory that a frame may need
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(window), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

// whileWanted reads until ctx ends.
type whileWanted struct {
	ctx context.Context
	in  io.Reader
}

func (w whileWanted) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.in.Read(p)
}

package build

import (
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

// storeContext stores a build context without compression. Nothing of it is unpacked: the builder reads the tar in
// place.
func storeContext(ctx context.Context, path string, in io.Reader, most int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := decompressed(bufio.NewReaderSize(whileWanted{ctx, in}, 64<<10))
	if err != nil {
		return notATar(err)
	}
	defer plain.Close()
	n, err := io.Copy(f, io.LimitReader(plain, most+1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return notATar(err)
	case n > most:
		return proto.Errorf(proto.TooLarge, "build", "context", "the build context has more than %d MiB unpacked; "+
			"leave out with a .dockerignore what the build does not need", most>>20)
	case n == 0:
		return proto.Invalid("context", "the body must be the build context: a tar with the Dockerfile, which may be "+
			"compressed with gzip or zstd.")
	}
	return f.Close()
}

func notATar(err error) error {
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

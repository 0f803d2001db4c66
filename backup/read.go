package backup

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxSmall is the most that a manifest or an end has, in bytes.
const maxSmall = 64 << 20

// A Handler takes the members of an archive, in their order. Its readers are valid during the call. What it does not
// read is skipped.
type Handler struct {
	Manifest func(Manifest) error
	Images   func(io.Reader) error                  // all pieces as one
	Tree     func(number string, r io.Reader) error // of each tree, all pieces as one
	File     func(h *tar.Header, r io.Reader) error // Name is the path in the data directory
}

// Check reads an archive to its end, and returns what is in it. progress gets how much has been read, and about how
// much there is.
func Check(ctx context.Context, r io.Reader, progress func(done, total int64)) (m Manifest, err error) {
	var trees, files int
	err = Read(ctx, r, progress, Handler{
		Manifest: func(found Manifest) error { m = found; return nil },
		Tree:     func(string, io.Reader) error { trees++; return nil },
		File:     func(*tar.Header, io.Reader) error { files++; return nil },
	})
	if err == nil && (trees != len(m.Trees) || files != m.Files) {
		err = fmt.Errorf("%w: it has %d trees and %d files, and should have %d and %d", ErrNotWhole, trees, files,
			len(m.Trees), m.Files)
	}
	return m, err
}

// Read reads an archive, plain or compressed by zstd, and checks that it is whole. It fails with ErrNotABackup,
// ErrNewer or ErrNotWhole, or with what the handler returns. What the handler was given before may be damaged.
func Read(ctx context.Context, r io.Reader, progress func(done, total int64), h Handler) error {
	in := bufio.NewReaderSize(r, 1<<20)
	if magic, err := in.Peek(4); err == nil && string(magic) == "\x28\xb5\x2f\xfd" {
		plain, err := zstd.NewReader(in)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotWhole, err)
		}
		defer plain.Close()
		return read(ctx, plain, progress, h)
	}
	return read(ctx, in, progress, h)
}

func read(ctx context.Context, r io.Reader, progress func(done, total int64), h Handler) error {
	a := &reader{ctx: ctx, tar: tar.NewReader(r), tally: tally{hash: sha256.New()}, progress: progress}
	if err := a.next(); err != nil || a.member.Name != manifestName {
		return ErrNotABackup
	}
	var m Manifest
	if err := a.decode(&m); err != nil || m.Format < 1 {
		return ErrNotABackup
	}
	if m.Format > format {
		return fmt.Errorf("%w (format %d, version %s)", ErrNewer, m.Format, m.Version)
	}
	a.total = m.Bytes
	if h.Manifest != nil {
		if err := h.Manifest(m); err != nil {
			return err
		}
	}
	for {
		if err := a.next(); err != nil {
			return notWhole(err)
		}
		if a.member.Name == endName {
			return a.finish()
		}
		if err := a.handle(h); err != nil {
			return err
		}
	}
}

func notWhole(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends too early", ErrNotWhole)
	}
	return fmt.Errorf("%w: %w", ErrNotWhole, err)
}

// A reader reads members, and counts them.
type reader struct {
	ctx context.Context
	tar *tar.Reader
	tally
	member   *tar.Header
	again    bool // next returns member once more
	progress func(done, total int64)
	total    int64
	failed   error // of the archive, as opposed to the handler
}

// next moves to the next member.
func (a *reader) next() (err error) {
	if a.again {
		a.again = false
		return nil
	}
	if err := a.ctx.Err(); err != nil {
		return err
	}
	a.member, err = a.tar.Next()
	if err == nil && a.member.Name != endName {
		a.begin(a.member.Name, a.member.Size)
	}
	if a.progress != nil {
		a.progress(a.Bytes, max(a.total, a.Bytes))
	}
	return err
}

// Read reads from the member.
func (a *reader) Read(p []byte) (int, error) {
	n, err := a.tar.Read(p)
	a.hash.Write(p[:n])
	if err != nil && err != io.EOF {
		a.failed = err
	}
	return n, err
}

// decode decodes the member.
func (a *reader) decode(v any) error {
	text, err := io.ReadAll(io.LimitReader(a, maxSmall))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// handle gives the member, and those that continue it, to the handler.
func (a *reader) handle(h Handler) error {
	var in io.Reader = a
	dir, rest, _ := strings.Cut(a.member.Name, "/")
	call := func(io.Reader) error { return nil }
	switch dir {
	case imagesDir:
		in = &pieces{a: a, dir: imagesDir + "/"}
		if h.Images != nil {
			call = h.Images
		}
	case treesDir:
		number, _, _ := strings.Cut(rest, "/")
		in = &pieces{a: a, dir: treesDir + "/" + number + "/"}
		if h.Tree != nil {
			call = func(r io.Reader) error { return h.Tree(number, r) }
		}
	case dataDir:
		if h.File != nil {
			member := *a.member
			member.Name = rest
			call = func(r io.Reader) error { return h.File(&member, r) }
		}
	}
	err := call(in)
	if a.failed != nil {
		return notWhole(a.failed)
	}
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return notWhole(err)
	}
	return nil
}

// finish compares the end with what was read.
func (a *reader) finish() error {
	var e end
	text, err := io.ReadAll(io.LimitReader(a.tar, maxSmall))
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return notWhole(err)
	}
	if e != a.sum() {
		return fmt.Errorf("%w: its checksum is not that of its content", ErrNotWhole)
	}
	return nil
}

// pieces reads consecutive members below a directory as one.
type pieces struct {
	a    *reader
	dir  string
	over bool
}

func (p *pieces) Read(b []byte) (int, error) {
	for !p.over {
		n, err := p.a.Read(b)
		if n > 0 && err == io.EOF { // of this piece
			return n, nil
		}
		if n > 0 || err != io.EOF {
			return n, err
		}
		if err := p.a.next(); err != nil {
			p.a.failed, p.over = err, true
			return 0, err
		}
		if !strings.HasPrefix(p.a.member.Name, p.dir) {
			p.a.again, p.over = true, true
		}
	}
	return 0, io.EOF
}

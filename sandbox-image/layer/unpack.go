package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"berth/sandbox-image/buildenv"
)

// Unpack unpacks a layer over the tree below root, and checks the digest of its bytes.
func Unpack(ctx context.Context, e *buildenv.Env, layer Layer, root string) error {
	stored, err := layer.Open()
	if err != nil {
		return err
	}
	defer stored.Close()
	read := digest.Canonical.Digester()
	var count counter
	report := writerFunc(func() {
		e.Step(buildenv.Step{Name: buildenv.StepUnpackingLayer, Done: int64(count), Total: layer.Size, Bytes: true})
	})
	z, err := zstd.NewReader(io.TeeReader(stored, io.MultiWriter(read.Hash(), &count, report)))
	if err != nil {
		return err
	}
	defer z.Close()
	u := &unpacking{ctx: ctx, root: root, times: map[string]time.Time{}}
	if err := u.read(tar.NewReader(z)); err != nil {
		return err
	}
	// The tar stream ends before the file. The rest is read through z, which reads ahead by itself.
	if _, err := io.Copy(io.Discard, z); err != nil {
		return err
	}
	if read.Digest() != layer.Digest {
		return fmt.Errorf("its bytes are not those that were packed")
	}
	return nil
}

// A writerFunc is called for each write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// An unpacking is a tar stream being written to a tree.
type unpacking struct {
	ctx   context.Context
	root  string
	times map[string]time.Time // of directories; set last, since new files in a directory change its time
}

func (u *unpacking) read(t *tar.Reader) error {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = errors.Join(u.ctx.Err(), u.entry(h, t))
		}
		if err != nil {
			return err
		}
	}
	for name, when := range u.times {
		if err := setTime(filepath.Join(u.root, name), when); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// entry makes one entry. It replaces an old file of the same name, unless both are directories.
func (u *unpacking) entry(h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) {
		return fmt.Errorf("entry %q leads out of the layer", h.Name)
	}
	dir, base := path.Split(name)
	if gone, ok := strings.CutPrefix(base, whiteoutPrefix); ok {
		return os.RemoveAll(filepath.Join(u.root, dir, gone))
	}
	target := filepath.Join(u.root, name)
	old, err := os.Lstat(target)
	if err == nil && !(old.IsDir() && h.Typeflag == tar.TypeDir) {
		if err := os.RemoveAll(target); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeLink {
		return os.Link(filepath.Join(u.root, path.Clean(h.Linkname)), target)
	}
	if err := u.createFile(h, target, content); err != nil {
		return err
	}
	return u.setMetadata(h, name, target)
}

// createFile makes the file, directory, link or device itself.
func (u *unpacking) createFile(h *tar.Header, target string, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, target)
	case tar.TypeReg:
		f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		kind := map[byte]uint32{tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK,
			tar.TypeFifo: unix.S_IFIFO}[h.Typeflag]
		return unix.Mknod(target, kind|0o600, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	}
	return fmt.Errorf("entry %q is of a kind that we do not pack", h.Name)
}

// setMetadata sets owner, attributes, mode and time, in an order in which none undoes another.
func (u *unpacking) setMetadata(h *tar.Header, name, target string) error {
	if err := os.Lchown(target, h.Uid, h.Gid); err != nil {
		return err
	}
	for key, value := range h.PAXRecords {
		attr, ok := strings.CutPrefix(key, attributePrefix)
		if !ok {
			continue
		}
		if err := unix.Lsetxattr(target, attr, []byte(value), 0); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeSymlink {
		return setTime(target, h.ModTime)
	}
	if err := os.Chmod(target, h.FileInfo().Mode()); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		u.times[name] = h.ModTime
		return nil
	}
	return setTime(target, h.ModTime)
}

// setTime sets a file's time; for a link, the link's own.
func setTime(path string, when time.Time) error {
	ts, err := unix.TimeToTimespec(when)
	if err != nil {
		return err
	}
	err = unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return &fs.PathError{Op: "utimes", Path: path, Err: err}
	}
	return nil
}

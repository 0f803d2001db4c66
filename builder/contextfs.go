package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	gofs "io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tonistiigi/fsutil"
	"github.com/tonistiigi/fsutil/types"
)

// A contextFS is a build context: a tar, read in place. Nothing of it is unpacked, so neither names nor links in it
// lead anywhere. It implements fsutil.FS.
type contextFS struct {
	tar     *os.File
	entries map[string]*contextEntry
	sorted  []string // paths in the order of a walk
	sum     string   // of the whole tar
}

// A contextEntry is one file of a context.
type contextEntry struct {
	stat   types.Stat
	offset int64 // of its content in the tar
}

const (
	// maxContextFiles bounds the files of a context, which are in memory with some 300 bytes each.
	maxContextFiles = 500_000
	// maxContextPath is the kernel's limit for paths, in bytes.
	maxContextPath = 4095
)

// openContext reads the tar's headers.
func openContext(name string) (*contextFS, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	c := &contextFS{tar: f, entries: map[string]*contextEntry{}}
	err = c.read()
	if err == nil {
		c.sum, err = sumOf(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	for p := range c.entries {
		c.sorted = append(c.sorted, p)
	}
	// The order of a walk: the files of a directory come right after it.
	slices.SortFunc(c.sorted, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
	return c, nil
}

func sumOf(f *os.File) (string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	h := sha256.New()
	_, err := io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// Close closes the tar.
func (c *contextFS) Close() error { return c.tar.Close() }

func (c *contextFS) read() error {
	tr := tar.NewReader(c.tar)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return invalid("the build context is not a whole tar: %v", err)
		}
		at, err := c.tar.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if err := c.add(hdr, at); err != nil {
			return err
		}
	}
}

// add adds one member. A later member of the same path replaces an earlier one, as with tar.
func (c *contextFS) add(hdr *tar.Header, at int64) error {
	bad := func(why string) error {
		return invalid("%.200q in the build context %s", hdr.Name, why)
	}
	p := strings.TrimPrefix(path.Clean("/"+hdr.Name), "/")
	switch {
	case p == "":
		return nil // the context itself
	case len(p) > maxContextPath || strings.ContainsRune(p, 0):
		return bad("has a path that no file can have")
	case len(c.entries) >= maxContextFiles:
		return bad(fmt.Sprintf("is one file too many; %d are the most", maxContextFiles))
	}
	info := hdr.FileInfo()
	e := &contextEntry{offset: at, stat: types.Stat{Path: p, Mode: uint32(info.Mode()), Size: hdr.Size,
		ModTime: hdr.ModTime.UnixNano()}}
	if hdr.Typeflag == tar.TypeGNUSparse || hdr.PAXRecords["GNU.sparse.major"] != "" {
		return bad("is packed as a sparse file; pack it without --sparse")
	}
	switch hdr.Typeflag {
	case tar.TypeReg:
	case tar.TypeDir:
		e.stat.Size = 0
	case tar.TypeSymlink:
		e.stat.Linkname, e.stat.Size = hdr.Linkname, int64(len(hdr.Linkname))
	case tar.TypeLink:
		target, ok := c.entries[strings.TrimPrefix(path.Clean("/"+hdr.Linkname), "/")]
		if !ok || !gofs.FileMode(target.stat.Mode).IsRegular() {
			return bad("is a link to a file that does not come before it")
		}
		e.offset, e.stat.Size, e.stat.Mode = target.offset, target.stat.Size, target.stat.Mode
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return bad("is a device, a pipe or of another kind that a build cannot copy")
	}
	c.addParents(p)
	c.entries[p] = e
	return nil
}

// addParents adds the directories above a path that the tar has not named.
func (c *contextFS) addParents(p string) {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if _, ok := c.entries[dir]; ok {
			return
		}
		c.entries[dir] = &contextEntry{stat: types.Stat{Path: dir, Mode: uint32(gofs.ModeDir | 0o755),
			ModTime: time.Unix(0, 0).UnixNano()}}
	}
}

// Walk implements fsutil.FS.
func (c *contextFS) Walk(ctx context.Context, target string, fn gofs.WalkDirFunc) error {
	target = strings.TrimPrefix(path.Clean("/"+target), "/")
	var skip string
	for _, p := range c.sorted {
		if err := ctx.Err(); err != nil {
			return err
		}
		outside := target != "" && p != target && !strings.HasPrefix(p, target+"/")
		if outside || skip != "" && strings.HasPrefix(p, skip) {
			continue
		}
		e := c.entries[p]
		err := fn(p, &fsutil.DirEntryInfo{Stat: e.stat.Clone()}, nil)
		switch {
		case errors.Is(err, gofs.SkipDir) && gofs.FileMode(e.stat.Mode).IsDir():
			skip = p + "/"
		case errors.Is(err, gofs.SkipDir):
			skip = path.Dir(p) + "/"
		case errors.Is(err, gofs.SkipAll):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// Open implements fsutil.FS.
func (c *contextFS) Open(p string) (io.ReadCloser, error) {
	e, ok := c.entries[strings.TrimPrefix(path.Clean("/"+p), "/")]
	if !ok || !gofs.FileMode(e.stat.Mode).IsRegular() {
		return nil, &os.PathError{Op: "open", Path: p, Err: gofs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(c.tar, e.offset, e.stat.Size)), nil
}

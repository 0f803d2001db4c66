package fs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/output"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// listingBytes is the approximate size of one message of a list.
const listingBytes = 128 << 10

// stat describes one file.
func (s *FS) stat(id user.User, path string) (fi proto.FileInfo, err error) {
	err = id.Do(func() (err error) {
		fi, err = access.InfoAt(unix.AT_FDCWD, path, path)
		fi.Attributes = access.Attributes(path)
		return err
	})
	if err == nil {
		one := []proto.FileInfo{fi}
		describe(id, one)
		fi = one[0]
	}
	return fi, wire.FileError(wire.OpStat, path, err)
}

// list describes the entries of a directory.
func list(id user.User, path string, most int) (files []proto.FileInfo, truncated bool, err error) {
	err = id.Do(func() error {
		d, err := access.OpenDir(unix.AT_FDCWD, path, true)
		if err != nil {
			return err
		}
		defer d.Close()
		names, err := d.Readdirnames(most + 1)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		truncated = len(names) > most
		sort.Strings(names)
		for _, name := range names[:min(len(names), most)] {
			fi, err := access.InfoAt(int(d.Fd()), name, filepath.Join(path, name))
			if err == nil { // otherwise it was removed in the meantime
				fi.Attributes = access.Attributes(filepath.Join(path, name))
				files = append(files, fi)
			}
		}
		return nil
	})
	describe(id, files)
	return files, truncated, err
}

// maxLooked is how many entries a walk examines for each entry that it may return. Without it, the walk of a tree
// that has only directories would be unbounded.
const maxLooked = 4

// walker collects the files below a directory.
type walker struct {
	most      int
	left      int    // number of entries that it may still examine
	others    bool   // return FIFOs, sockets and devices too
	prune     string // a directory to remove on the way if it is empty; "" once done
	pruned    bool   // it was removed
	dev       uint64
	files     []proto.FileInfo
	truncated bool
	random    bool   // which entries it examined depends on the order of a directory
	linked    bool   // a file has several names
	buf       []byte // buffer for directory entries from the kernel
}

// walk describes the files and links below dir, and with others also FIFOs, sockets and devices. dir itself must not be
// a link, because the daemon uses the result for its manifest index.
// since is Request.Since.
func (k *handler) walk(id user.User, dir string, most int, others bool, since string) error {
	walk := func() (*walker, error) {
		w := &walker{most: most, left: maxLooked * (most + 1000), others: others}
		return w, id.Do(func() error { return w.from(k.s, dir) })
	}
	var w *walker
	var mark string
	var err error
	if others && id.IsRoot() && filepath.Dir(dir) == string(k.s.Workspace) { // for a manifest
		if l, ok := k.s.walkTouched(dir, since, most); ok {
			return k.list(l.Files, l, nil)
		}
		w, mark, err = k.s.walkMarked(dir, walk)
	} else {
		w, err = walk()
	}
	return k.list(w.sorted(), wire.Listing{Truncated: w.truncated, Mark: mark}, wire.FileError(wire.OpWalk, dir, err))
}

// from walks dir and everything below it.
func (w *walker) from(s *FS, dir string) error {
	d, err := s.OpenDirFD(dir)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if err := unix.Fstat(d, &st); err != nil {
		return err
	}
	w.dev, w.buf = uint64(st.Dev), make([]byte, 8<<10)
	return w.walk(d, dir, 0)
}

// sorted returns the files found, sorted by path.
func (w *walker) sorted() []proto.FileInfo {
	sort.Slice(w.files, func(i, j int) bool { return w.files[i].Path < w.files[j].Path })
	return w.files
}

// walk reads one open directory. Below the first directory it leaves out what it cannot read, and paths that are too
// long for the kernel.
func (w *walker) walk(d int, path string, depth int) error {
	entries, err := access.ReadEntries(d, w.buf, w.left+1)
	if err != nil {
		return err
	}
	if len(entries) > w.left {
		entries, w.truncated, w.random = entries[:w.left], true, true
	}
	w.left -= len(entries)
	slices.SortFunc(entries, func(a, b access.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		child := filepath.Join(path, e.Name)
		if len(child) >= unix.PathMax { // the walk uses descriptors and reaches entries whose paths are too long
			w.truncated = true
			continue
		}
		if child == w.prune && w.removeEmpty(d, e.Name) {
			continue
		}
		if e.Kind == unix.DT_DIR { // a directory is not listed, so no stat is needed
			w.descend(d, e.Name, child, depth+1)
		} else {
			w.addEntry(d, e.Name, child, depth)
		}
		if w.truncated && len(w.files) >= w.most {
			return nil
		}
	}
	return nil
}

// removeEmpty removes the directory prune if it is empty. If the walker may not remove it, the caller must.
func (w *walker) removeEmpty(at int, name string) bool {
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if err == nil || err == unix.ENOTEMPTY {
		w.prune = ""
	}
	w.pruned = err == nil
	return w.pruned
}

// addEntry describes an entry that is not a directory, or whose type is unknown.
func (w *walker) addEntry(d int, name, child string, depth int) {
	fi, links, err := access.InfoLinks(d, name, child)
	w.linked = w.linked || links > 1
	switch {
	case err != nil:
	case fi.Type == proto.TypeDirectory:
		w.descend(d, name, child, depth+1)
	case fi.Type == proto.TypeOther && !w.others:
	case len(w.files) >= w.most:
		w.truncated = true
	default:
		w.files = append(w.files, fi)
	}
}

// descend walks a subdirectory if it is on the same file system.
func (w *walker) descend(d int, name, path string, depth int) {
	if depth > wire.MaxDepth {
		w.truncated = true
		return
	}
	sub, err := access.OpenEntry(d, name)
	if err != nil {
		w.truncated = w.truncated || !access.IsMissing(err) // it may have been removed
		return
	}
	defer unix.Close(sub)
	var st unix.Stat_t
	if unix.Fstat(sub, &st) != nil || uint64(st.Dev) != w.dev {
		return
	}
	if w.walk(sub, path, depth) != nil {
		w.truncated = true
	}
}

// sizeOf returns about how many bytes a file takes in a list.
func sizeOf(fi *proto.FileInfo) int {
	_, attributes := wire.AttributeBytes(fi.Attributes)
	return 300 + len(fi.Path) + 2*len(fi.RawPath) + len(fi.Target) + attributes
}

// list sends a list in messages of limited size. about has what each message says of the whole list.
func (k *handler) list(files []proto.FileInfo, about wire.Listing, err error) error {
	if err != nil {
		return k.conn.SendReply(nil, err)
	}
	for {
		n, bytes := 0, 0
		for n < len(files) && bytes < listingBytes {
			bytes += sizeOf(&files[n])
			n++
		}
		about.Files, about.More = files[:n], n < len(files)
		if err := k.conn.SendJSON(wire.FrameReply, about); err != nil || !about.More {
			return err
		}
		files = files[n:]
	}
}

// move renames a file.
func move(id user.User, from, to string) error {
	err := id.Do(func() error {
		if _, err := os.Lstat(from); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return unix.Rename(from, to)
	})
	item := from
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EISDIR) ||
		errors.Is(err, unix.ENOTDIR) {
		item = to
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EISDIR) {
		return proto.Errorf(proto.AlreadyExists, wire.OpMove, to, "%s is a directory and stays; remove it first", to)
	}
	return wire.FileError(wire.OpMove, item, err)
}

// hash hashes files. It leaves the result empty for files that cannot be hashed.
func (s *FS) hash(id user.User, paths [][]byte) []string {
	sums := make([]string, len(paths))
	for i, raw := range paths {
		if path, err := s.pathOf(wire.OpHash, raw); err == nil {
			sums[i] = s.hashFile(id, path)
		}
	}
	return sums
}

// hashFile returns the SHA-256 of a regular file in hex, or "". It follows no link, because the daemon uses the
// result for its manifest index.
func (s *FS) hashFile(id user.User, path string) string {
	f, st, err := s.OpenFile(id, path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st.Size > wire.MaxHash {
		return ""
	}
	sum := sha256.New()
	buf := output.NewBuffer()
	defer buf.Free()
	// A growing file is hashed up to the size that it had.
	if _, err := io.CopyBuffer(onlyWriter{sum}, io.LimitReader(f, st.Size), buf.Data()); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// onlyWriter hides other methods, so that io.CopyBuffer uses the buffer.
type onlyWriter struct{ io.Writer }

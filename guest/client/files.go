package client

import (
	"context"
	"encoding/hex"
	"io"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// What follows works on files inside the container, as "user" or "root": the
// kernel checks the permissions of that user. Paths are absolute or relative to the workspace.

// Stat describes one file. It does not follow a link at the end of path.
func (c *Client) Stat(ctx context.Context, as, path string) (proto.FileInfo, error) {
	var fi proto.FileInfo
	err := c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpStat, As: as, Path: []byte(path)}, &fi)
	return fi, err
}

// List returns what a directory holds, sorted by name, MaxList entries at most, and less where their paths are very
// long; truncated says that there are more.
func (c *Client) List(ctx context.Context, as, path string) (files []proto.FileInfo, truncated bool, err error) {
	return c.listing(ctx, &wire.Request{Op: wire.OpList, As: as, Path: []byte(path), Max: wire.MaxList})
}

// Walk returns the regular files and symbolic links below dir, max at most, sorted by path. It follows no link, not
// on the way to dir either, and stays on dir's file system. Directories that may not be read are left out and make it
// truncated, as do paths that are very long.
func (c *Client) Walk(ctx context.Context, as, dir string, max int) (files []proto.FileInfo, truncated bool,
	err error) {
	return c.listing(ctx, &wire.Request{Op: wire.OpWalk, As: as, Path: []byte(dir), Max: min(max, wire.MaxWalk)})
}

// longestPath is the most that a path in a list may have, in bytes: what one system call takes, and below that a name
// of 255 for each level of a walk. Twice that, since a byte that is not UTF-8 shows as three, and at most every
// second one does. The same bounds all else that is said of a file.
const longestPath = 2 * (unix.PathMax + (wire.MaxDepth+1)*256)

// listedBytes bounds the text of a whole list: 10,000 files with names as they are in use need a tenth of it. A deep
// tree of long names may have more, so a list that does is no nonsense, but cut.
const listedBytes = 16 << 20

// textOf is how many bytes are said of a file, and whether that can be so.
func textOf(fi *proto.FileInfo) (all int, ok bool) {
	for _, n := range []int{len(fi.Path), len(fi.RawPath), len(fi.Type), len(fi.Mode), len(fi.Target), len(fi.SHA256)} {
		if n > longestPath {
			return 0, false
		}
		all += n
	}
	return all, true
}

// listing collects the messages of a list.
func (c *Client) listing(ctx context.Context, req *wire.Request) (files []proto.FileInfo, truncated bool, err error) {
	err = c.do(ctx, wire.LongWait, func(w *wire.Conn) error {
		if err := w.SendRequest(req, nil); err != nil {
			return wire.Fail(w, err)
		}
		left := listedBytes
		for {
			var l wire.Listing
			if err := w.ReadReply(&l); err != nil {
				return err
			}
			// A piece that brings nothing could go on for ever.
			if len(files)+len(l.Files) > req.Max || l.More && len(l.Files) == 0 {
				return wire.Fail(w, wire.ErrFrame)
			}
			for i := range l.Files {
				n, ok := textOf(&l.Files[i])
				if !ok {
					return wire.Fail(w, wire.ErrFrame)
				}
				if left -= n; left < 0 {
					w.Broken, truncated = true, true // what is still to come is in the way of the next answer
					return nil
				}
				files = append(files, l.Files[i])
			}
			truncated = l.Truncated
			if !l.More {
				return nil
			}
		}
	})
	if err != nil {
		return nil, false, err
	}
	return files, truncated, nil
}

// Mkdir makes a directory and the parents it lacks. One that is there is no error.
func (c *Client) Mkdir(ctx context.Context, as, path string) error {
	return c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpMkdir, As: as, Path: []byte(path)}, nil)
}

// Remove removes a file, link or directory; one that is not empty only if recursive. It never
// follows a link. An error in the middle leaves the rest.
func (c *Client) Remove(ctx context.Context, as, path string, recursive bool) error {
	return c.call(ctx, wire.LongWait, &wire.Request{Op: wire.OpRemove, As: as, Path: []byte(path),
		Recursive: recursive}, nil)
}

// Move renames from to to, making to's parents. It replaces a file but not a directory, and does not
// cross file systems.
func (c *Client) Move(ctx context.Context, as, from, to string) error {
	return c.call(ctx, wire.LongWait, &wire.Request{Op: wire.OpMove, As: as, Path: []byte(from), To: []byte(to)}, nil)
}

// Bounds of the paths of one request, in bytes and in number.
const (
	hashBatch = 1 << 20
	hashPaths = 10_000
)

// Hash returns the SHA-256, in hex, of each regular file of paths. Files that are gone, may not be
// read, have a link on the way, are no regular files, or are larger than MaxHash are left out.
func (c *Client) Hash(ctx context.Context, as string, paths []string) (map[string]string, error) {
	sums := make(map[string]string, len(paths))
	for len(paths) > 0 {
		n, bytes := 0, 0
		batch := make([][]byte, 0, min(len(paths), 1000))
		for n < min(len(paths), hashPaths) && (n == 0 || bytes+len(paths[n]) < hashBatch) {
			batch = append(batch, []byte(paths[n]))
			bytes += len(paths[n])
			n++
		}
		if err := c.hash(ctx, as, batch, sums); err != nil {
			return nil, err
		}
		paths = paths[n:]
	}
	return sums, nil
}

func (c *Client) hash(ctx context.Context, as string, batch [][]byte, sums map[string]string) error {
	var got []string
	if err := c.call(ctx, wire.LongWait, &wire.Request{Op: wire.OpHash, As: as, Paths: batch}, &got); err != nil {
		return err
	}
	for i, sum := range got {
		if raw, err := hex.DecodeString(sum); i < len(batch) && err == nil && len(raw) == 32 {
			sums[string(batch[i])] = sum
		}
	}
	return nil
}

// Edit runs one command of the editor tool. Path must be set; what cannot be done is InvalidArgument
// with a text that helps to do it right, a file that is not there NotFound.
func (c *Client) Edit(ctx context.Context, as string, in proto.EditorInput) (proto.EditorResult, error) {
	var r proto.EditorResult
	err := c.call(ctx, wire.LongWait, &wire.Request{Op: wire.OpEdit, As: as, Path: []byte(in.Path), Edit: &in}, &r)
	return r, err
}

// Read opens a file and returns n bytes from off, or all that follow if n is negative. The
// length is fixed when it is opened: a file that grows is cut there, one that shrinks ends in Conflict. The
// reader must be closed; ctx bounds it too.
func (c *Client) Read(ctx context.Context, as, path string, off, n int64) (io.ReadCloser, proto.FileInfo, error) {
	return c.read(ctx, &wire.Request{Op: wire.OpRead, As: as, Path: []byte(path), Offset: off, Count: n})
}

// ReadNoLinks is Read of a whole file that fails with InvalidArgument where a link is on the way or at the end.
func (c *Client) ReadNoLinks(ctx context.Context, as, path string) (io.ReadCloser, proto.FileInfo, error) {
	return c.read(ctx, &wire.Request{Op: wire.OpRead, As: as, Path: []byte(path), Count: -1, NoLinks: true})
}

func (c *Client) read(ctx context.Context, req *wire.Request) (io.ReadCloser, proto.FileInfo, error) {
	var r wire.Opened
	req.Handover = c.passesFiles()
	d, err := c.download(ctx, req, &r)
	switch {
	case err != nil:
		return nil, proto.FileInfo{}, err
	case r.Length < 0 || req.Count >= 0 && r.Length > req.Count:
		err = wire.Fail(d.w, wire.ErrFrame)
		_ = d.Close()
		return nil, proto.FileInfo{}, err
	case r.Handover:
		f, err := d.receive(req, &r)
		return f, r.Info, err
	}
	d.left = r.Length
	return d, r.Info, nil
}

// Tar packs dir as a tar archive with names relative to it. Sockets, FIFOs and devices
// are left out, links are kept as links. The reader must be closed.
func (c *Client) Tar(ctx context.Context, as, dir string) (io.ReadCloser, error) {
	return c.tar(ctx, &wire.Request{Op: wire.OpTar, As: as, Path: []byte(dir)})
}

// TarNoLinks is Tar of a directory that no link leads to; else it fails with InvalidArgument.
func (c *Client) TarNoLinks(ctx context.Context, as, dir string) (io.ReadCloser, error) {
	return c.tar(ctx, &wire.Request{Op: wire.OpTar, As: as, Path: []byte(dir), NoLinks: true})
}

func (c *Client) tar(ctx context.Context, req *wire.Request) (io.ReadCloser, error) {
	d, err := c.download(ctx, req, nil)
	if err != nil {
		return nil, err
	}
	d.left = -1
	return d, nil
}

// Untar unpacks a tar archive into dir, which it makes. Members are owned by as, whatever the archive says.
// Absolute names, "..", links that lead out, devices and FIFOs are refused with InvalidArgument that names the
// member; those before it were unpacked, as the message says.
func (c *Client) Untar(ctx context.Context, as, dir string, archive io.Reader, limits wire.UntarLimits) error {
	return c.upload(ctx, &wire.Request{Op: wire.OpUntar, As: as, Path: []byte(dir), Untar: limits}, archive, nil)
}

// Write makes a file of what body gives, and its parents. It appears whole or not at all: what was there
// stays until the last byte has come. A link at the end of path is followed. The answer has the SHA-256.
func (c *Client) Write(ctx context.Context, as, path string, opt wire.WriteOptions,
	body io.Reader) (proto.FileInfo, error) {
	var fi proto.FileInfo
	err := c.upload(ctx, &wire.Request{Op: wire.OpWrite, As: as, Path: []byte(path), Write: opt}, body, &fi)
	return fi, err
}

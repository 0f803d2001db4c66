package client

import (
	"cmp"
	"context"
	"encoding/hex"
	"io"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// The methods below work on files inside the container, as "user", "root" or another user of it. The
// kernel checks the permissions of
// that user. Paths are absolute or relative to the workspace.

// Stat describes one file. It does not follow a link at the end of path.
func (c *Client) Stat(ctx context.Context, as, path string) (proto.FileInfo, error) {
	var fi proto.FileInfo
	err := c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpStat, As: as, Path: []byte(path)}, &fi)
	return fi, err
}

// List returns the entries of a directory, sorted by name. It returns at most MaxList entries, and fewer if their
// paths are very long. truncated says that there are more.
func (c *Client) List(ctx context.Context, as, path string) (files []proto.FileInfo, truncated bool, err error) {
	l, err := c.listing(ctx, &wire.Request{Op: wire.OpList, As: as, Path: []byte(path), Max: wire.MaxList})
	return l.Files, l.Truncated, err
}

// Walk returns the regular files and symbolic links below dir, at most max, sorted by path. It follows no link, not
// even on the way to dir, and stays on dir's file system. It leaves out unreadable directories and very long paths,
// and then sets truncated.
func (c *Client) Walk(ctx context.Context, as, dir string, max int) (files []proto.FileInfo, truncated bool,
	err error) {
	l, err := c.listing(ctx, &wire.Request{Op: wire.OpWalk, As: as, Path: []byte(dir), Max: min(max, wire.MaxWalk)})
	return l.Files, l.Truncated, err
}

// WalkAll is Walk that returns FIFOs, sockets and devices too. A guest of an earlier version leaves them out. For a
// truncated walk of a job's directory as root, the result has a Mark: the Exit.Seen of later commands equals it as
// long as nothing has changed. A guest that cannot tell sends none. since is the state that an earlier walk had, for a
// Delta in answer, or "".
func (c *Client) WalkAll(ctx context.Context, as, dir string, max int, since string) (wire.Listing, error) {
	return c.listing(ctx, &wire.Request{Op: wire.OpWalk, As: as, Path: []byte(dir), Max: min(max, wire.MaxWalk),
		Others: true, Since: since})
}

// longestPath is the maximum length of a path in a list, in bytes: the limit of one system call, plus a name of 255
// for each level of a walk below that. The constant is twice that sum: a byte that is not UTF-8 becomes three bytes,
// and at most every second byte can be one. The same limit applies to every other text about a file.
const longestPath = 2 * (unix.PathMax + (wire.MaxDepth+1)*256)

// listedBytes bounds the text of a whole list. 10,000 files with usual names need a tenth of it. A deep tree of long
// names may need more, so a longer list is not an error; it is truncated.
const listedBytes = 16 << 20

// textOf returns how many bytes of text describe a file, and whether that is possible. Attributes count as what holding
// them takes, because a few bytes are enough for one.
func textOf(fi *proto.FileInfo) (all int, ok bool) {
	for _, n := range []int{len(fi.Path), len(fi.RawPath), len(fi.Type), len(fi.Mode), len(fi.Target), len(fi.SHA256),
		len(fi.Owner), len(fi.Group), len(fi.TargetType)} {
		if n > longestPath {
			return 0, false
		}
		all += n
	}
	text, held := wire.AttributeBytes(fi.Attributes)
	return all + held, text <= wire.MaxAttributes
}

// listing collects the messages of a list.
func (c *Client) listing(ctx context.Context, req *wire.Request) (all wire.Listing, err error) {
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
			// Messages without entries could go on forever.
			if len(all.Files)+len(l.Files) > req.Max || l.More && len(l.Files) == 0 || len(l.Mark) > wire.MaxSeen ||
				len(l.Next) > unix.PathMax || l.Skipped < 0 || l.Delta && req.Since == "" ||
				len(l.Gone) > 0 && !l.Delta {
				return wire.Fail(w, wire.ErrFrame)
			}
			for i := range l.Files {
				n, ok := textOf(&l.Files[i])
				if !ok {
					return wire.Fail(w, wire.ErrFrame)
				}
				if left -= n; left < 0 {
					// the unread rest would precede the next answer
					w.Broken, all.Truncated, all.Mark = true, true, ""
					return nil
				}
				all.Files = append(all.Files, l.Files[i])
			}
			all.Truncated, all.Mark, all.Next, all.Skipped = l.Truncated, l.Mark, l.Next, l.Skipped
			all.Delta, all.Gone = l.Delta, l.Gone
			if !l.More {
				return nil
			}
		}
	})
	if err != nil {
		return wire.Listing{}, err
	}
	return all, nil
}

// Find returns a page of the entries below a directory. It follows no link but one at the end of dir.
func (c *Client) Find(ctx context.Context, as, dir string, o proto.FindOptions) (proto.FindPage, error) {
	if err := c.knows(ctx, wire.FilesFind); err != nil {
		return proto.FindPage{}, err
	}
	l, err := c.listing(ctx, &wire.Request{Op: wire.OpFind, As: as, Path: []byte(dir), Find: &o,
		Max: cmp.Or(o.Limit, proto.MaxFindPage)})
	return proto.FindPage{Files: l.Files, Next: l.Next, Skipped: l.Skipped}, err
}

// knows returns an error if the guest is older than an operation on files.
func (c *Client) knows(ctx context.Context, level int) error {
	if _, err := c.crossing(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hello.FileCalls < level {
		return proto.Errorf(proto.Unsupported, "", "", "this container was started by an earlier version of berth, "+
			"which lacks this; stop it, and its next use starts it with this version")
	}
	return nil
}

// Mkdir makes a directory and its missing parents. An existing directory is not an error.
func (c *Client) Mkdir(ctx context.Context, as, path string) error {
	return c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpMkdir, As: as, Path: []byte(path)}, nil)
}

// Remove removes a file, link or directory. It removes a directory that is not empty only if recursive is set. It
// never follows a link. After an error in the middle, the rest remains.
func (c *Client) Remove(ctx context.Context, as, path string, recursive bool) error {
	return c.call(ctx, wire.LongWait, &wire.Request{Op: wire.OpRemove, As: as, Path: []byte(path),
		Recursive: recursive}, nil)
}

// Move renames from to to and makes to's parents. It replaces a file but not a directory. It does not cross file
// systems.
func (c *Client) Move(ctx context.Context, as, from, to string) error {
	return c.call(ctx, wire.LongWait, &wire.Request{Op: wire.OpMove, As: as, Path: []byte(from), To: []byte(to)}, nil)
}

// Limits on the paths of one request, in bytes and in number.
const (
	hashBatch = 1 << 20
	hashPaths = 10_000
)

// Hash returns the SHA-256, in hex, of each regular file of paths. It leaves out files that are missing, unreadable,
// not regular, larger than MaxHash, or behind a link.
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

// Edit runs one command of the editor tool. Path must be set. An edit that cannot be done returns InvalidArgument
// with a text that helps to correct it. A missing file returns NotFound.
func (c *Client) Edit(ctx context.Context, as string, in proto.EditorInput) (proto.EditorResult, error) {
	var r proto.EditorResult
	err := c.call(ctx, wire.LongWait, &wire.Request{Op: wire.OpEdit, As: as, Path: []byte(in.Path), Edit: &in}, &r)
	return r, err
}

// Read opens a file and returns n bytes from off, or all that follow if n is negative. The length is fixed at the
// open: a file that grows is cut there, and one that shrinks ends in Conflict. The caller must close the reader. ctx
// also bounds the reader.
func (c *Client) Read(ctx context.Context, as, path string, off, n int64) (io.ReadCloser, proto.FileInfo, error) {
	return c.read(ctx, &wire.Request{Op: wire.OpRead, As: as, Path: []byte(path), Offset: off, Count: n})
}

// ReadNoLinks is Read of a whole file. It fails with InvalidArgument if a link is on the way or at the end.
func (c *Client) ReadNoLinks(ctx context.Context, as, path string) (io.ReadCloser, proto.FileInfo, error) {
	return c.read(ctx, &wire.Request{Op: wire.OpRead, As: as, Path: []byte(path), Count: -1, NoLinks: true})
}

// ReadFollowing is ReadNoLinks, but path itself may be a link, and is followed as long as it stays in the workspace. A
// guest of an earlier version follows none.
func (c *Client) ReadFollowing(ctx context.Context, as, path string) (io.ReadCloser, proto.FileInfo, error) {
	return c.read(ctx, &wire.Request{Op: wire.OpRead, As: as, Path: []byte(path), Count: -1, NoLinks: true,
		Follow: true})
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

// An Archive is a directory that arrives as a tar archive.
type Archive struct{ *download }

// Unread returns the files that the archive lacks because they could not be read. It is nil before the end of the
// archive, and with an older guest, which does not tell.
func (a *Archive) Unread() *proto.Unread { return a.unread }

// Tar packs dir as a tar archive with names relative to dir. It leaves out sockets, FIFOs and devices, and keeps
// links as links. The caller must close the reader.
func (c *Client) Tar(ctx context.Context, as, dir string) (*Archive, error) {
	return c.tar(ctx, &wire.Request{Op: wire.OpTar, As: as, Path: []byte(dir)})
}

// TarNoLinks is Tar that fails with InvalidArgument if a link is on the way to the directory.
func (c *Client) TarNoLinks(ctx context.Context, as, dir string) (*Archive, error) {
	return c.tar(ctx, &wire.Request{Op: wire.OpTar, As: as, Path: []byte(dir), NoLinks: true})
}

func (c *Client) tar(ctx context.Context, req *wire.Request) (*Archive, error) {
	d, err := c.download(ctx, req, nil)
	if err != nil {
		return nil, err
	}
	d.left = -1
	return &Archive{d}, nil
}

// Untar unpacks a tar archive into dir and makes dir. The members belong to as, regardless of the archive. Untar
// refuses absolute names, "..", links that lead out, devices and FIFOs with InvalidArgument that names the member.
// The members before it stay unpacked, as the message says.
func (c *Client) Untar(ctx context.Context, as, dir string, archive io.Reader, limits wire.UntarLimits) error {
	return c.upload(ctx, &wire.Request{Op: wire.OpUntar, As: as, Path: []byte(dir), Untar: limits}, archive, nil)
}

// Write makes a file with the content of body, and its parents. The write is atomic: the old content stays until the
// last byte has arrived. Write follows a link at the end of path. The answer has the SHA-256. With
// opt.InPlace the write is not atomic.
func (c *Client) Write(ctx context.Context, as, path string, opt wire.WriteOptions,
	body io.Reader) (proto.FileInfo, error) {
	var fi proto.FileInfo
	if opt.InPlace != nil {
		level := wire.FilesInPlace
		if a := opt.InPlace.Attributes; a != nil && len(a.Values) > 0 {
			level = wire.FilesAttributes
		}
		if err := c.knows(ctx, level); err != nil {
			return fi, err
		}
	}
	err := c.upload(ctx, &wire.Request{Op: wire.OpWrite, As: as, Path: []byte(path), Write: opt}, body, &fi)
	return fi, err
}

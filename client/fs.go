package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/proto"
)

// An FS is the file system of one container with the rights of one user.
type FS struct {
	c         *Client
	container string
	as        string
}

// FS returns the file system of a container with the rights of a user: "user", "root" or another user of the container.
func (c *Client) FS(container, as string) FS { return FS{c, container, as} }

// request builds a request about a path. The path is in the query: proxies would clean one in the URL's path, and it
// could not be empty or relative.
func (f FS) request(method, what, path string) request {
	return request{method: method, path: at("containers", f.container, "fs", what), query: url.Values{"path": {path},
		"as": {f.as}}}
}

// Stat describes one file; it does not follow a link at the end of path.
func (f FS) Stat(ctx context.Context, path string) (fi proto.FileInfo, err error) {
	_, err = f.c.call(ctx, f.request(http.MethodGet, "stat", path), &fi)
	return fi, err
}

// A Download is a file or an archive that is being received.
type Download struct {
	io.ReadCloser
	Size     int64     // bytes; -1 if unknown
	Mode     uint32    // permission bits of a file; 0 if unknown
	Modified time.Time // of a file; zero if unknown

	res *http.Response
}

// Unread returns the files that an archive lacks, or has a part of only, because they could not be read. It is nil
// before the archive was read to io.EOF, and if the daemon or a proxy did not tell.
func (d *Download) Unread() *proto.Unread {
	u, ok := proto.ParseUnread(d.res.Trailer.Get(proto.UnreadTrailer), d.res.Trailer.Get(proto.UnreadNamesTrailer))
	if !ok {
		return nil
	}
	return &u
}

// Read opens a file.
func (f FS) Read(ctx context.Context, path string) (*Download, error) {
	return f.c.download(ctx, f.request(http.MethodGet, "content", path))
}

// Tar opens a directory as a tar archive. Names in it are relative to the directory. Files that the user may not read
// are left out; see Download.Unread.
func (f FS) Tar(ctx context.Context, path string) (*Download, error) {
	return f.c.download(ctx, f.request(http.MethodGet, "tar", path))
}

// download opens an answer that is not JSON, with the file's attributes from its headers.
func (c *Client) download(ctx context.Context, r request) (*Download, error) {
	res, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	// Size is -1 for an archive, which the daemon builds while sending it.
	d := &Download{ReadCloser: &body{res.Body, ctx, c}, Size: res.ContentLength, res: res}
	if mode, err := strconv.ParseUint(res.Header.Get("Berth-File-Mode"), 8, 32); err == nil {
		// Permission bits only: a setuid bit from a container must not reach a file of this machine.
		d.Mode = uint32(mode) & 0o777
	}
	d.Modified, _ = time.Parse(time.RFC3339Nano, res.Header.Get("Berth-File-Modified")) // zero if it is not there
	return d, nil
}

// Write stores size bytes (0: unknown) of r as the file path, whole or not at all.
func (f FS) Write(ctx context.Context, path string, mode uint32, r io.Reader, size int64) (fi proto.FileInfo,
	err error) {
	req := f.request(http.MethodPut, "content", path)
	req.raw, req.size = r, size
	// 0 lets the daemon choose. A file without any permission cannot be requested.
	if mode != 0 {
		req.query.Set("mode", fmt.Sprintf("%04o", mode))
	}
	_, err = f.c.call(ctx, req, &fi)
	return fi, err
}

// WriteInPlace writes r into the file path without replacing it. An upload that breaks leaves a part.
func (f FS) WriteInPlace(ctx context.Context, path string, in proto.InPlace, r io.Reader, size int64) (
	fi proto.FileInfo, err error) {
	req := f.request(http.MethodPatch, "content", path)
	req.raw, req.size = r, size
	setWhole(req.query, "offset", in.Offset)
	if in.Append {
		req.query.Set("append", "true")
	}
	if in.Truncate {
		req.query.Set("truncate", "true")
	}
	_, err = f.c.call(ctx, req, &fi)
	return fi, err
}

// Untar unpacks a tar archive into a directory, and creates the directory if needed.
func (f FS) Untar(ctx context.Context, path string, r io.Reader) error {
	req := f.request(http.MethodPut, "tar", path)
	req.raw, req.header = r, map[string]string{"Content-Type": "application/x-tar"}
	_, err := f.c.call(ctx, req, nil)
	return err
}

// A body is an answer's body. It converts the errors of the connection.
type body struct {
	io.ReadCloser
	ctx context.Context
	c   *Client
}

// Read reads from the body. It converts errors of the connection for callers, except io.EOF.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.c.broken(b.ctx, err)
	}
	return n, err
}

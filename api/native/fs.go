package native

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"berth/api"
	"berth/proto"
	"berth/session"
)

// The opener may be called twice, for a range; each time the path is looked up anew in the
// container.
func (e *edge) readContent(c *call) error {
	s, err := e.session(c)
	if err != nil {
		return err
	}
	return c.sendFile(func(offset, n int64) (io.ReadCloser, proto.FileInfo, error) {
		return s.ReadFile(c.r.Context(), c.as(), c.query.Get("path"), offset, n)
	})
}

// describe puts what is known of a file into the header.
// Cache-Control lets a cache keep the file only if it asks each time: code changes files without
// telling anyone.
func describe(h http.Header, fi proto.FileInfo) {
	rawBody(h, "application/octet-stream")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Cache-Control", "no-cache")
	h.Set("Last-Modified", fi.ModifiedAt.UTC().Format(http.TimeFormat))
	h.Set("Berth-File-Mode", fi.Mode)
	h.Set("Berth-File-Modified", fi.ModifiedAt.UTC().Format(time.RFC3339Nano)) // Last-Modified has whole seconds only
}

// wholeBody refuses a body that is a part of what is to be written: taken for the whole, it would replace the file by
// its tail.
func (c *call) wholeBody() error {
	if len(c.r.Header.Values("Content-Range")) == 0 {
		return nil
	}
	return invalid("Content-Range", "Content-Range says that the body is a part, and parts are not taken here; send "+
		"the whole of it, without that header.")
}

// The body goes to the guest as it comes in; a file is never whole in the daemon's memory.
func (e *edge) writeContent(c *call) error {
	if err := c.wholeBody(); err != nil {
		return err
	}
	s, err := e.session(c)
	if err != nil {
		return err
	}
	fi, err := s.WriteFile(c.r.Context(), c.as(), c.query.Get("path"), session.WriteOptions{Mode: c.mode("mode"),
		Hash: c.flag("hash")}, c.r.Body)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, fi)
}

// The answer to the removal of a file or directory.
type deletedPath struct {
	Path    string `json:"path"`
	Deleted bool   `json:"deleted"` // Always true.
}

// The path goes back as it was given, so that the client recognises it.
func (e *edge) removeContent(c *call) error {
	s, err := e.session(c)
	if err != nil {
		return err
	}
	path := c.query.Get("path")
	if err := s.RemoveFile(c.r.Context(), c.as(), path, c.flag("recursive")); err != nil {
		return err
	}
	return c.json(http.StatusOK, deletedPath{path, true})
}

// What a directory holds.
type listing struct {
	Data      []proto.FileInfo `json:"data"`
	Truncated bool             `json:"truncated"` // The directory holds more than a list may.
}

func (e *edge) listDirectory(c *call) error {
	s, err := e.session(c)
	if err != nil {
		return err
	}
	data, truncated, err := s.List(c.r.Context(), c.as(), c.query.Get("path"))
	if err != nil {
		return err
	}
	if data == nil {
		data = []proto.FileInfo{}
	}
	return c.json(http.StatusOK, listing{data, truncated})
}

// It does not follow a link at the end of the path, which list and content do.
func (e *edge) statFile(c *call) error {
	s, err := e.session(c)
	if err != nil {
		return err
	}
	fi, err := s.Stat(c.r.Context(), c.as(), c.query.Get("path"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, fi)
}

// The old and the new path of a file.
type move struct {
	From string `json:"from" schema:"minLength=1 noNUL"`
	To   string `json:"to" schema:"minLength=1 noNUL"`
	As   string `json:"as,omitempty" schema:"enum=|user|root"` // user (default) or root.
}

// Both paths are the container's, and its own kernel decides what as may do.
func (e *edge) moveFile(c *call) error {
	var req move
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	if req.From == "" || req.To == "" {
		return invalid("from", "from and to must name a file and its new path.")
	}
	// Paths in a body are noted by the handler; those of a query are noted for every route.
	api.Note(c.r.Context(), req.From+" to "+req.To)
	as, err := checkAs(req.As)
	if err != nil {
		return err
	}
	s, err := e.session(c)
	if err != nil {
		return err
	}
	if err := s.MoveFile(c.r.Context(), as, req.From, req.To); err != nil {
		return err
	}
	return c.json(http.StatusOK, move{req.From, req.To, as})
}

// A directory.
type directory struct {
	Path string `json:"path" schema:"minLength=1 noNUL"`
	As   string `json:"as,omitempty" schema:"enum=|user|root"` // user (default) or root.
}

func (e *edge) makeDirectory(c *call) error {
	var req directory
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	if req.Path == "" {
		return invalid("path", "path must name the directory to make.")
	}
	api.Note(c.r.Context(), req.Path)
	as, err := checkAs(req.As)
	if err != nil {
		return err
	}
	s, err := e.session(c)
	if err != nil {
		return err
	}
	if err := s.Mkdir(c.r.Context(), as, req.Path); err != nil {
		return err
	}
	return c.json(http.StatusOK, directory{req.Path, as})
}

// checkAs is the user that a body's as names.
// Numeric users are refused: what a number means depends on the image, and 0 would be root without
// saying so.
func checkAs(as string) (string, error) {
	switch as {
	case "":
		return proto.UserDefault, nil
	case proto.UserDefault, proto.UserRoot:
		return as, nil
	}
	return "", invalid("as", "as %.80q: use %q or %q.", as, proto.UserDefault, proto.UserRoot)
}

// The first error comes from Tar, before the header. What fails later can only break the
// connection off.
func (e *edge) readTar(c *call) error {
	s, err := e.session(c)
	if err != nil {
		return err
	}
	r, err := s.Tar(c.r.Context(), c.as(), c.query.Get("path"))
	if err != nil {
		return err
	}
	defer r.Close()
	return c.sendTar(r)
}

func (c *call) sendTar(r io.Reader) error {
	rawBody(c.w.Header(), "application/x-tar")
	_, err := io.Copy(c, r)
	return err
}

// Members are unpacked in the container as the user in as, who can do no more than there.
func (e *edge) writeTar(c *call) error {
	if err := c.wholeBody(); err != nil {
		return err
	}
	s, err := e.session(c)
	if err != nil {
		return err
	}
	path := c.query.Get("path")
	if err := s.Untar(c.r.Context(), c.as(), path, c.r.Body); err != nil {
		return err
	}
	return c.json(http.StatusOK, directory{path, c.as()})
}

// contentLength announces how long a body will be.
func contentLength(h http.Header, n int64) { h.Set("Content-Length", strconv.FormatInt(n, 10)) }

package native

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"berth/api"
	"berth/proto"
	"berth/session"
	"berth/session/filework"
)

// For a range, the opener is called twice. Each call resolves the path again in the container.
func (e *edge) readContent(c *call, s session.Files) (any, error) {
	return nil, c.sendFile(func(offset, n int64) (io.ReadCloser, proto.FileInfo, error) {
		return s.ReadFile(c.ctx(), c.as(), c.query.Get("path"), offset, n)
	})
}

// setFileHeaders describes a file in the headers. A cache must ask again each time, since code changes files at any
// time.
func setFileHeaders(h http.Header, fi proto.FileInfo) {
	rawBody(h, octets)
	h.Set("Accept-Ranges", "bytes")
	h.Set("Cache-Control", "no-cache")
	h.Set("Last-Modified", fi.ModifiedAt.UTC().Format(http.TimeFormat))
	h.Set("Berth-File-Mode", fi.Mode)
	h.Set("Berth-File-Modified", fi.ModifiedAt.UTC().Format(time.RFC3339Nano)) // Last-Modified only has whole seconds
}

// wholeBody refuses a body with Content-Range: it would replace the whole file by a part.
func (c *call) wholeBody() error {
	if len(c.r.Header.Values("Content-Range")) == 0 {
		return nil
	}
	return proto.Invalid("Content-Range", "Content-Range says that the body is a part, and parts are not accepted; "+
		"send the whole content, without that header.")
}

// The guest gets the body as it arrives; the daemon never holds a whole file in memory.
func (e *edge) writeContent(c *call) (fi proto.FileInfo, err error) {
	if err := c.wholeBody(); err != nil {
		return fi, err
	}
	s, err := e.files(c)
	if err != nil {
		return fi, err
	}
	return filework.Write(c.ctx(), s, c.as(), c.query.Get("path"), session.WriteOptions{Mode: c.mode("mode"),
		Hash: c.flag("hash"), Size: c.r.ContentLength}, c.r.Body)
}

// The file keeps its inode, so that programs that have it open, and watches, see the change.
func (e *edge) writeContentInPlace(c *call) (fi proto.FileInfo, err error) {
	if err := c.wholeBody(); err != nil {
		return fi, err
	}
	in := &proto.InPlace{Offset: c.whole("offset"), Append: c.flag("append"), Truncate: c.flag("truncate")}
	if in.Append && (c.query.Has("offset") || in.Truncate) {
		return fi, proto.Invalid("append", "append excludes offset and truncate.")
	}
	s, err := e.files(c)
	if err != nil {
		return fi, err
	}
	return filework.Write(c.ctx(), s, c.as(), c.query.Get("path"), session.WriteOptions{Mode: c.mode("mode"),
		InPlace: in, Size: c.r.ContentLength}, c.r.Body)
}

// The answer to the removal of a file or directory.
type deletedPath struct {
	Path    string `json:"path"`
	Deleted bool   `json:"deleted"` // Always true.
}

// The path is returned as it was given, so that the client recognizes it.
func (e *edge) removeContent(c *call, s session.Files) (deletedPath, error) {
	path := c.query.Get("path")
	return deletedPath{path, true}, s.RemoveFile(c.ctx(), c.as(), path, c.flag("recursive"))
}

// statFile does not follow a link at the end of the path; list and content do.
func (e *edge) statFile(c *call, s session.Files) (proto.FileInfo, error) {
	return s.Stat(c.ctx(), c.as(), c.query.Get("path"))
}

// An event stream has no position to go on from: the kernel keeps no events for a watch that is over.
func (e *edge) watchDirectory(c *call, s session.Files) (any, error) {
	ctx, cancel := context.WithCancel(c.ctx())
	defer cancel()
	dir := c.query.Get("path")
	w, err := filework.OpenWatch(ctx, s, c.as(), dir, c.flag("recursive"), c.flag("entries"))
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return nil, c.streamEvents(cancel, func(es *api.EventStream) error {
		return w.Events(dir, func(ev proto.FileEvent) error { return es.Send(string(ev.Type), ev) })
	})
}

// streamEvents answers with the events that send sends. cancel ends send when the client has gone or the daemon ends.
func (c *call) streamEvents(cancel func(), send func(*api.EventStream) error) error {
	es := api.NewEventStream(c.w, c.r)
	defer es.Close()
	defer context.AfterFunc(es.Context(), cancel)()
	err := send(es)
	if es.Context().Err() != nil {
		if api.IsDraining(c.ctx()) {
			return nil
		}
		return context.Canceled
	}
	return err
}

// The old and the new path of a file.
type move struct {
	From string `json:"from" schema:"minLength=1 noNUL"`
	To   string `json:"to" schema:"minLength=1 noNUL"`
	As   string `json:"as,omitempty" schema:"user"` // user (default), root, or another user of the container.
}

// Both paths are in the container, and its kernel checks what the user may do.
func (e *edge) moveFile(c *call, req move) (move, error) {
	if req.From == "" || req.To == "" {
		return req, proto.Invalid("from", "from and to must name a file and its new path.")
	}
	// The handler notes paths of a body; those of a query are noted for every route.
	api.Note(c.ctx(), req.From+" to "+req.To)
	s, err := e.filesAs(c, &req.As)
	if err != nil {
		return req, err
	}
	return req, s.MoveFile(c.ctx(), req.As, req.From, req.To)
}

// A directory.
type directory struct {
	Path string `json:"path" schema:"minLength=1 noNUL"`
	As   string `json:"as,omitempty" schema:"user"` // user (default), root, or another user of the container.
}

func (e *edge) makeDirectory(c *call, req directory) (directory, error) {
	if req.Path == "" {
		return req, proto.Invalid("path", "path must name the directory to make.")
	}
	api.Note(c.ctx(), req.Path)
	s, err := e.filesAs(c, &req.As)
	if err != nil {
		return req, err
	}
	return req, s.Mkdir(c.ctx(), req.As, req.Path)
}

// filesAs is files for a body that names a user, and fills in the default.
func (e *edge) filesAs(c *call, as *string) (session.Files, error) {
	*as = cmp.Or(*as, proto.UserDefault)
	if !proto.ValidUser(*as) {
		return session.Files{}, proto.Invalid("as", "as %.80q: %s.", *as, proto.UserRule)
	}
	return e.files(c)
}

// An error of Tar itself comes before the header. A later one can only break the connection.
func (e *edge) readTar(c *call, s session.Files) (any, error) {
	return nil, c.sendTar(s.Tar(c.ctx(), c.as(), c.query.Get("path")))
}

// sendTar sends an archive and closes it. Trailers name the files that could not be read. They follow a complete
// archive only, so that a client can tell it from a broken one.
func (c *call) sendTar(r io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	defer r.Close()
	h := c.w.Header()
	rawBody(h, tarType)
	h.Set("Trailer", proto.UnreadTrailer+", "+proto.UnreadNamesTrailer)
	if _, err = io.Copy(c, r); err != nil {
		return err
	}
	if u := proto.UnreadOf(r); u != nil {
		h.Set(proto.UnreadTrailer, strconv.FormatInt(u.Count, 10))
		h.Set(proto.UnreadNamesTrailer, u.Text())
	}
	return nil
}

// The container unpacks the members as the user in as.
func (e *edge) writeTar(c *call) (done directory, err error) {
	if err := c.wholeBody(); err != nil {
		return done, err
	}
	s, err := e.files(c)
	if err != nil {
		return done, err
	}
	done = directory{c.query.Get("path"), c.as()}
	return done, s.Untar(c.ctx(), done.As, done.Path, c.r.Body)
}

// contentLength sets the length of a body.
func contentLength(h http.Header, n int64) { h.Set("Content-Length", strconv.FormatInt(n, 10)) }

// An opener opens n bytes of a file from an offset; n < 0 means to its end. The FileInfo describes the opened file,
// so size and content agree.
type opener func(offset, n int64) (io.ReadCloser, proto.FileInfo, error)

// sendFile answers with a file, or with the part that Range asks for. Several ranges and a malformed Range get the
// whole file, as RFC 9110 allows. So does If-Range: it can only name Last-Modified, which a file that changes twice
// in one second keeps.
func (c *call) sendFile(open opener) error {
	want, ok := parseRange(c.r.Header.Get("Range"))
	ok = ok && c.r.Header.Get("If-Range") == ""
	if c.r.Method == http.MethodHead {
		return c.sendHead(open)
	}
	if ok {
		return c.sendPart(open, want)
	}
	r, fi, err := open(0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	setFileHeaders(c.w.Header(), fi)
	contentLength(c.w.Header(), fi.SizeBytes)
	_, err = io.Copy(c, r)
	return err
}

// sendHead opens the file, too, since the answer says whether it may be read. It ignores Range.
func (c *call) sendHead(open opener) error {
	r, fi, err := open(0, 0)
	if err != nil {
		return err
	}
	setFileHeaders(c.w.Header(), fi)
	contentLength(c.w.Header(), fi.SizeBytes)
	c.w.WriteHeader(http.StatusOK)
	return r.Close()
}

// sendPart asks for the size first, since a range may count from the end or lie behind it.
func (c *call) sendPart(open opener, want span) error {
	r, fi, err := open(0, 0)
	if err != nil {
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	first, n := want.within(fi.SizeBytes)
	h := c.w.Header()
	if n <= 0 {
		// RFC 9110 wants this for a 416: a client that resumes learns that it has everything.
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", fi.SizeBytes))
		return api.WithStatus(http.StatusRequestedRangeNotSatisfiable,
			proto.Invalid("Range", "The file has %d bytes; the range lies behind them.", fi.SizeBytes))
	}
	if r, fi, err = open(first, n); err != nil {
		return err
	}
	defer r.Close()
	// Check again, since the second open may have found another file. Content-Length must not promise too much.
	if fi.SizeBytes < first+n {
		return proto.Errorf(proto.Conflict, "", fi.Path, "%s became shorter while it was read; ask again.", fi.Path)
	}
	setFileHeaders(h, fi)
	contentLength(h, n)
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, fi.SizeBytes))
	c.w.WriteHeader(http.StatusPartialContent)
	_, err = io.Copy(c, r)
	return err
}

// A span is one range: from first to last, or the last suffix bytes.
type span struct {
	first, last int64 // last is -1 for the end of the file
	suffix      int64 // if not 0, first and last do not count
}

// parseRange reads "bytes=first-last", "bytes=first-" and "bytes=-suffix".
func parseRange(header string) (s span, ok bool) {
	text, ok := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(text), "-")
	if !ok || !dash {
		return s, false
	}
	switch {
	case first == "":
		s.suffix, ok = number(last)
		s.first, s.last = -1, -1
	case last == "":
		s.first, ok = number(first)
		s.last = -1
	default:
		var ok2 bool
		s.first, ok = number(first)
		s.last, ok2 = number(last)
		ok = ok && ok2 && s.first <= s.last
	}
	return s, ok
}

// number reads digits only.
func number(s string) (int64, bool) {
	// ParseUint takes no sign, and 63 bits fit an int64.
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}

// within returns the part of a file of this size that the range covers; n is 0 if there is none.
func (s span) within(size int64) (first, n int64) {
	if s.first < 0 {
		n = min(s.suffix, size)
		return size - n, n
	}
	end := size
	if s.last >= 0 {
		end = min(s.last, size-1) + 1
	}
	return s.first, max(0, end-s.first)
}

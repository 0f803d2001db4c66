package envd

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"

	"berth/api"
	"berth/api/e2b/connectrpc"
	"berth/proto"
	"berth/session"
)

// maxUploads is how many files one form may have.
const maxUploads = 10_000

// sniffed is how much of a file tells its media type, in bytes.
const sniffed = 512

// fileBox returns the sandbox for a request to /files, which names its user in the query.
func (a *Agent) fileBox(r *http.Request, s *session.Session) box {
	b := a.boxOf(r, s, userOf(r))
	if name := r.URL.Query().Get("username"); name != "" {
		b.user = name
	}
	return b
}

// readFile answers with the content of a file, or with parts of it.
func (a *Agent) readFile(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	b := a.fileBox(r, s)
	at, err := b.path(r.Context(), r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	c := &content{ctx: r.Context(), b: b, path: at}
	defer c.Close()
	if err := c.open(0); err != nil {
		if proto.CodeOf(err) == proto.NotFound {
			return proto.Errorf(proto.NotFound, "", at, "path '%s' does not exist", at)
		}
		return s.HideError(err)
	}
	head := make([]byte, min(sniffed, c.info.SizeBytes))
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	h := w.Header()
	kind := mime.TypeByExtension(path.Ext(at))
	if kind == "" {
		kind = http.DetectContentType(head)
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(at)}))
	h.Add("Vary", "Accept-Encoding")
	if wantsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		h.Set("Last-Modified", c.info.ModifiedAt.UTC().Format(http.TimeFormat))
		return sendPacked(w, io.MultiReader(bytes.NewReader(head), c))
	}
	http.ServeContent(w, r, path.Base(at), c.info.ModifiedAt.Time, c)
	return c.err
}

// wantsGzip reports whether a file is sent compressed. A range is one of the file as it is.
func wantsGzip(r *http.Request) bool {
	for one := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(one), ";")
		if strings.EqualFold(name, "gzip") && strings.ReplaceAll(quality, " ", "") != "q=0" {
			return r.Method == http.MethodGet && r.Header.Get("Range") == ""
		}
	}
	return false
}

func sendPacked(w io.Writer, from io.Reader) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err == nil {
		_, err = io.Copy(z, from)
	}
	if err != nil {
		return err
	}
	return z.Close()
}

// content is a file of a container that can be read from any offset. It opens the file anew where reading jumps.
type content struct {
	ctx  context.Context
	b    box
	path string
	info proto.FileInfo // as first opened

	r  io.ReadCloser // nil: the next read opens it
	at int64
	// why a read failed; http.ServeContent does not tell
	err error
}

// open opens the file at an offset.
func (c *content) open(at int64) error {
	r, fi, err := c.b.s.ReadFile(c.ctx, c.b.user, c.path, at, -1)
	if err != nil {
		return err
	}
	if c.info.Path == "" {
		c.info = fi
	}
	c.r, c.at = r, at
	return nil
}

// Read reads on.
func (c *content) Read(p []byte) (n int, err error) {
	if left := c.info.SizeBytes - c.at; left <= 0 {
		return 0, io.EOF
	} else if int64(len(p)) > left {
		p = p[:left]
	}
	if c.r == nil {
		if err = c.open(c.at); err != nil {
			c.err = err
			return 0, err
		}
	}
	n, err = c.r.Read(p)
	c.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	if errors.Is(err, io.EOF) && c.at < c.info.SizeBytes {
		c.err = proto.Errorf(proto.Conflict, "", c.path, "%s became shorter while it was read", c.path)
		err = c.err
	}
	return n, err
}

// Seek moves the offset of the next read.
func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.info.SizeBytes
	}
	if offset != c.at {
		if err := c.Close(); err != nil {
			return 0, err
		}
		c.at = offset
	}
	return offset, nil
}

// Close closes the file.
func (c *content) Close() error {
	if c.r == nil {
		return nil
	}
	r := c.r
	c.r = nil
	return r.Close()
}

// A written file.
type written struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

// writeFiles stores the files of a form, or a body as one file.
func (a *Agent) writeFiles(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	meta, err := metadata(r.Header)
	if err != nil {
		return err
	}
	b := a.fileBox(r, s)
	body, err := unpacked(r)
	if err != nil {
		return err
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return proto.Invalid("Content-Type", "Content-Type must be multipart/form-data or application/octet-stream")
	}
	var done []written
	switch media {
	case "multipart/form-data":
		done, err = b.writeForm(r, meta, multipart.NewReader(body, params["boundary"]))
	case "application/octet-stream":
		if !r.URL.Query().Has("path") {
			return proto.Invalid("path", "path must name the file")
		}
		done, err = b.writeOne(r.Context(), done, r.URL.Query().Get("path"), meta, body)
	default:
		err = proto.Invalid("Content-Type", "Content-Type must be multipart/form-data or application/octet-stream")
	}
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, done)
}

// unpacked returns the body of a request, which may be compressed.
func unpacked(r *http.Request) (io.Reader, error) {
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, proto.Invalid("body", "the body is not gzip: %v", err)
		}
		return z, nil
	default:
		return nil, proto.Invalid("Content-Encoding", "Content-Encoding must be gzip or left out, not %.80q", encoding)
	}
}

// writeForm stores each part called file. Its file name is its path, unless the query has one.
func (b box) writeForm(r *http.Request, meta map[string]string, form *multipart.Reader) (done []written, err error) {
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			if len(done) == 0 {
				return nil, proto.Invalid("file", "the form has no file")
			}
			return done, nil
		}
		if err != nil {
			return nil, proto.Invalid("body", "the form is not valid: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		if len(done) == maxUploads {
			return nil, proto.Invalid("file", "a form may have %d files", maxUploads)
		}
		at := r.URL.Query().Get("path")
		if at == "" { // the parser of forms leaves directories out
			_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			at = params["filename"]
		}
		if at == "" {
			return nil, proto.Invalid("path", "a file of the form has no path")
		}
		if done, err = b.writeOne(r.Context(), done, at, meta, part); err != nil {
			return nil, err
		}
	}
}

// writeOne stores one file, in place: programs that have it open, and watches, see a write.
func (b box) writeOne(ctx context.Context, done []written, at string, meta map[string]string, r io.Reader) ([]written,
	error) {
	at, err := b.path(ctx, at)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(done, func(w written) bool { return w.Path == at }) {
		return nil, proto.Invalid("path", "the form has two files for the path '%s'", at)
	}
	if _, err := b.s.WriteFile(ctx, b.user, at, session.WriteOptions{InPlace: &proto.InPlace{Truncate: true,
		Attributes: &proto.Attributes{Prefix: metadataPrefix, Values: meta}}}, r); err != nil {
		if proto.CodeOf(err) == proto.QuotaExceeded {
			return nil, connectrpc.Errorf(connectrpc.ResourceExhausted, proto.QuotaExceeded, "not enough disk space "+
				"available")
		}
		return nil, b.s.HideError(err)
	}
	return append(done, written{at, path.Base(at), "file", meta}), nil
}

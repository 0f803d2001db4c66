package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"

	"berth/proto"
)

// A File is a stored file as the Files API shows it.
type File struct {
	ID           string      `json:"id"`
	Type         string      `json:"type"`
	Filename     string      `json:"filename"`
	MIMEType     string      `json:"mime_type"`
	SizeBytes    int64       `json:"size_bytes"`
	CreatedAt    proto.Time  `json:"created_at"`
	Downloadable bool        `json:"downloadable"`
	ExpiresAt    *proto.Time `json:"expires_at"`
}

// filesVersion is the version of the Files API that this client speaks. The daemon refuses requests to that API
// without a version.
var filesVersion = map[string]string{"anthropic-version": "2023-06-01"}

// An Upload is a file to store.
type Upload struct {
	Name             string
	MediaType        string    // "": the daemon detects it
	ExpiresInSeconds int64     // 0: kept until deleted
	Body             io.Reader // streamed, never held in memory
	Size             int64     // bytes of Body; 0 is unknown
}

// UploadFile stores a file.
func (c *Client) UploadFile(ctx context.Context, up Upload) (f File, err error) {
	var frame bytes.Buffer
	form := multipart.NewWriter(&frame)
	if err := up.writeHead(form); err != nil {
		return f, err
	}
	headLen := frame.Len()
	if err := form.Close(); err != nil { // the closing boundary tells the daemon that nothing was cut off
		return f, err
	}
	head, tail := frame.Bytes()[:headLen], frame.Bytes()[headLen:]
	r := request{method: http.MethodPost, path: at("files"), header: map[string]string{
		"Content-Type": form.FormDataContentType()}}
	maps.Copy(r.header, filesVersion)
	content := up.Body
	if up.Size > 0 {
		r.size, content = int64(frame.Len())+up.Size, &exactly{content, up.Size}
	}
	body := &revocable{r: io.MultiReader(bytes.NewReader(head), content, bytes.NewReader(tail))}
	defer body.revoke()
	r.raw = body
	_, err = c.call(ctx, r, &f)
	return f, err
}

// A revocable reader returns errors once it is revoked. The transport may read on after the answer has come, when the
// caller uses the reader behind it again.
type revocable struct {
	mu sync.Mutex
	r  io.Reader
}

func (r *revocable) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.r == nil {
		return 0, io.ErrClosedPipe
	}
	return r.r.Read(p)
}

// revoke waits for a read in progress. All later reads fail.
func (r *revocable) revoke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.r = nil
}

// An exactly reader returns a fixed number of bytes. It ignores further ones, and fails if there are fewer.
type exactly struct {
	r    io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	if e.left -= int64(n); err == io.EOF && e.left > 0 {
		err = fmt.Errorf("the file became %d bytes shorter while it was sent", e.left)
	}
	return n, err
}

// quoteEscaper escapes a filename for a quoted parameter. It replaces line ends as browsers do: unescaped, they would
// start a new header.
var quoteEscaper = strings.NewReplacer("\\", "\\\\", `"`, "\\\"", "\r", "%0D", "\n", "%0A")

// writeHead writes the form up to the file's content. The fields come first, so that the daemon knows them before the
// content.
func (up Upload) writeHead(form *multipart.Writer) error {
	if up.ExpiresInSeconds > 0 {
		if err := form.WriteField("expires_in_seconds", strconv.FormatInt(up.ExpiresInSeconds, 10)); err != nil {
			return err
		}
	}
	h := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + quoteEscaper.Replace(
		up.Name) + `"`}}
	// CreatePart and not CreateFormFile, which sets application/octet-stream for every file.
	if up.MediaType != "" {
		h.Set("Content-Type", up.MediaType)
	}
	_, err := form.CreatePart(h)
	return err
}

// Files lists stored files, newest first.
func (c *Client) Files(ctx context.Context) ([]File, error) {
	return pages[File](ctx, c, at("files"))
}

// File returns the description of a stored file.
func (c *Client) File(ctx context.Context, id string) (f File, err error) {
	_, err = c.call(ctx, request{method: http.MethodGet, path: at("files", id), header: filesVersion}, &f)
	return f, err
}

// FileContent opens a stored file.
func (c *Client) FileContent(ctx context.Context, id string) (*Download, error) {
	return c.download(ctx, request{method: http.MethodGet, path: at("files", id, "content"), header: filesVersion})
}

// DeleteFile deletes a stored file.
func (c *Client) DeleteFile(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: at("files", id), header: filesVersion}, nil)
	return err
}

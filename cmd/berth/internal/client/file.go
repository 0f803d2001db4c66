package client

import (
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

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

// filesVersion is the version of the Files API that this client speaks.
// The daemon refuses requests to the Files API without it.
var filesVersion = map[string]string{"anthropic-version": "2023-06-01"}

// An Upload is a file to store.
type Upload struct {
	Name             string
	MediaType        string    // "" lets the daemon look
	ExpiresInSeconds int64     // 0: kept until deleted
	Body             io.Reader // streamed, never held in memory
}

// UploadFile stores a file.
func (c *Client) UploadFile(ctx context.Context, up Upload) (f File, err error) {
	pr, pw := io.Pipe()
	form := multipart.NewWriter(pw)
	// The form is written by a goroutine of its own, since the request reads while it is written.
	// A failure to read the file goes through the pipe and breaks the request off.
	written := make(chan struct{})
	go func() {
		defer close(written)
		pw.CloseWithError(up.write(form))
	}()
	h := map[string]string{"Content-Type": form.FormDataContentType()}
	for k, v := range filesVersion {
		h[k] = v
	}
	_, err = c.call(ctx, request{method: http.MethodPost, path: at("files"), raw: pr, header: h}, &f)
	pr.Close() // frees the writer if the daemon did not take it all
	// Waited for: up.Body is the caller's to close once this returns.
	<-written
	return f, err
}

// quoteEscaper escapes a filename for a quoted parameter. Line ends become what browsers write: as
// they are they would begin a new header.
var quoteEscaper = strings.NewReplacer("\\", "\\\\", `"`, "\\\"", "\r", "%0D", "\n", "%0A")

// write writes the form: the fields first, so that the daemon knows them before the file comes.
func (up Upload) write(form *multipart.Writer) error {
	if up.ExpiresInSeconds > 0 {
		if err := form.WriteField("expires_in_seconds", strconv.FormatInt(up.ExpiresInSeconds, 10)); err != nil {
			return err
		}
	}
	h := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + quoteEscaper.Replace(up.Name) + `"`}}
	// CreatePart and not CreateFormFile, which would claim application/octet-stream for every
	// file.
	if up.MediaType != "" {
		h.Set("Content-Type", up.MediaType)
	}
	w, err := form.CreatePart(h)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, up.Body); err != nil {
		return err
	}
	// The closing boundary tells the daemon that nothing was cut off.
	return form.Close()
}

// Files lists stored files, newest first.
func (c *Client) Files(ctx context.Context) ([]File, error) {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	var all []File
	for {
		var page struct {
			Data     []File  `json:"data"`
			NextPage *string `json:"next_page"`
		}
		if _, err := c.call(ctx, request{method: http.MethodGet, path: at("files"), query: q, header: filesVersion}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if page.NextPage == nil || *page.NextPage == "" {
			return all, nil
		}
		q.Set("page", *page.NextPage)
	}
}

// File describes one.
func (c *Client) File(ctx context.Context, id string) (f File, err error) {
	_, err = c.call(ctx, request{method: http.MethodGet, path: at("files", id), header: filesVersion}, &f)
	return f, err
}

// FileContent opens a stored file.
func (c *Client) FileContent(ctx context.Context, id string) (*Download, error) {
	return c.download(ctx, request{method: http.MethodGet, path: at("files", id, "content"), header: filesVersion})
}

// DeleteFile removes a stored file.
func (c *Client) DeleteFile(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: at("files", id), header: filesVersion}, nil)
	return err
}

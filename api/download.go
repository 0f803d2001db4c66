package api

import (
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"

	"berth/proto"
)

// SendFile answers with the whole content of a stored file, as a download. Its uploader chose the content and its type,
// so a browser must neither guess the type nor show it as a page of this origin.
func SendFile(w http.ResponseWriter, r *http.Request, f proto.StoredFile, content io.Reader) error {
	h := w.Header()
	h.Set("Content-Type", f.MIMEType)
	h.Set("Content-Length", strconv.FormatInt(f.SizeBytes, 10))
	// A file from a container may have a name with directories, which a download has not.
	name := path.Base(f.Filename)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-store")
	h.Set("Accept-Ranges", "none")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	// An exact length lets the kernel send the file.
	_, err := io.CopyN(w, content, f.SizeBytes)
	return err
}

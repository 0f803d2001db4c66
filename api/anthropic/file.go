package anthropic

import (
	"net/http"

	"berth/api"
	"berth/proto"
)

// A file has the fields of a file in all dialects.
type file struct {
	ID           string     `json:"id"`
	Type         string     `json:"type" schema:"const=file"`
	Filename     string     `json:"filename"`
	MIMEType     string     `json:"mime_type"`
	SizeBytes    int64      `json:"size_bytes" schema:"min=0"`
	CreatedAt    proto.Time `json:"created_at"`
	Downloadable bool       `json:"downloadable"`
}

// A fileGA has an expiry; null is never.
type fileGA struct {
	file
	ExpiresAt *proto.Time `json:"expires_at"`
}

// A fileLegacy is of the time before files could expire.
type fileLegacy struct {
	file
	Scope *scope `json:"scope"`
}

// A fileHybrid has all fields.
type fileHybrid struct {
	fileGA
	Scope *scope `json:"scope"`
}

// A scope is the container that made a file. Its type is the hosted service's word.
type scope struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// describe converts a file to a dialect.
func describe(f proto.StoredFile, s shape) any {
	common := file{ID: f.ID, Type: "file", Filename: f.Filename, MIMEType: f.MIMEType,
		SizeBytes: f.SizeBytes, CreatedAt: f.CreatedAt, Downloadable: f.Downloadable}
	var from *scope
	if f.Scope != "" {
		from = &scope{Type: "session", ID: f.Scope}
	}
	switch s {
	case shapeLegacy:
		return fileLegacy{common, from}
	case shapeHybrid:
		return fileHybrid{fileGA{common, f.ExpiresAt}, from}
	}
	return fileGA{common, f.ExpiresAt}
}

// metadata describes a file, including one that has expired and is still recorded.
func (e edge) metadata(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	f, err := e.Files.Get(r.Context(), c.Owner, r.PathValue("file_id"))
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, describe(f, shapeOf(r)))
}

// A deletedFile is the answer to a deletion.
type deletedFile struct {
	ID   string `json:"id"`
	Type string `json:"type" schema:"const=file_deleted"`
}

// delete removes a file for good.
func (e edge) delete(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	id := r.PathValue("file_id")
	if err := e.Files.Delete(r.Context(), c.Owner, id); err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, deletedFile{id, "file_deleted"})
}

// download sends the whole content: the dialect has no ranges.
func (e edge) download(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	content, f, err := e.Files.Open(r.Context(), c.Owner, r.PathValue("file_id"))
	if err != nil {
		return err
	}
	defer content.Close()
	if e.StrictDownloads && !f.Downloadable {
		return coded{"file_not_downloadable", proto.Invalid(f.ID,
			"File `%s` is not downloadable: it was uploaded, not made by code.", f.ID)}
	}
	return api.SendFile(w, r, f, content)
}

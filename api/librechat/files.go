package librechat

import (
	"context"
	"net/http"
	"path"
	"slices"
	"time"

	"berth/api"
	"berth/files"
	"berth/proto"
)

// notFound is the error for a file that is not the caller's, not of that session, over, or was never there.
func notFound(file string) error {
	return proto.Errorf(proto.NotFound, "", file, "File not found: %.80q is not in this session, or has expired; "+
		"upload it again", file)
}

// find returns a stored file of the owner by the session and ID that a client has.
func (e *Edge) find(ctx context.Context, owner, spelledSession, spelledFile string) (proto.StoredFile, error) {
	session, id := unspell(proto.ContainerPrefix, spelledSession), unspell(proto.FilePrefix, spelledFile)
	if session == "" || id == "" {
		return proto.StoredFile{}, notFound(spelledFile)
	}
	f, err := e.cfg.Files.Get(ctx, owner, id)
	if proto.CodeOf(err) == proto.NotFound || err == nil && (f.Scope != session || over(f)) {
		return proto.StoredFile{}, notFound(spelledFile)
	}
	return f, err
}

// over reports whether a file has expired.
func over(f proto.StoredFile) bool { return f.ExpiresAt != nil && !time.Now().Before(f.ExpiresAt.Time) }

// named returns the file that the path of a request names.
func (e *Edge) named(r *http.Request, c api.Caller) (proto.StoredFile, error) {
	return e.find(r.Context(), c.Owner, r.PathValue("session"), r.PathValue("file"))
}

// download sends the content of a file.
func (e *Edge) download(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	f, err := e.named(r, c)
	if err != nil {
		return err
	}
	content, f, err := e.cfg.Files.Open(r.Context(), c.Owner, f.ID)
	if err != nil {
		return err
	}
	defer content.Close()
	return api.SendFile(w, r, f, content)
}

// delete removes a file.
func (e *Edge) delete(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	f, err := e.named(r, c)
	if err != nil {
		return err
	}
	if err := e.cfg.Files.Delete(r.Context(), c.Owner, f.ID); err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, map[string]string{"message": "File deleted successfully",
		"session_id": r.PathValue("session"), "fileId": r.PathValue("file")})
}

// An object describes a file. Clients look at its age before they use it again.
type object struct {
	Name         string     `json:"name"` // session/file and the extension
	Original     string     `json:"originalFilename"`
	Size         int64      `json:"size"`
	LastModified proto.Time `json:"lastModified"`
	ETag         string     `json:"etag"`
	ContentType  string     `json:"contentType"`
	ReadOnly     bool       `json:"readOnly"`
}

// objectName is the name of a file in lists. Clients cut its ID out.
func objectName(f proto.StoredFile) string {
	return spellSession(f.Scope) + "/" + spellFile(f.ID) + path.Ext(f.Filename)
}

// metadata describes a file.
func (e *Edge) metadata(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	f, err := e.named(r, c)
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, object{objectName(f), f.Filename, f.SizeBytes, f.CreatedAt, f.SHA256, f.MIMEType,
		false})
}

// details are the forms of a list, by the query key detail. Any other value is the simple one.
var details = map[string]func(f proto.StoredFile) any{
	"summary":    func(f proto.StoredFile) any { return summarize(f) },
	"full":       func(f proto.StoredFile) any { return fullOf(f) },
	"normalized": func(f proto.StoredFile) any { return normalize(f) },
}

type summary struct {
	Name         string     `json:"name"`
	Size         int64      `json:"size"`
	LastModified proto.Time `json:"lastModified"`
	ETag         string     `json:"etag"`
}

func summarize(f proto.StoredFile) summary {
	return summary{objectName(f), f.SizeBytes, f.CreatedAt, f.SHA256}
}

type full struct {
	summary
	Metadata    map[string]string `json:"metadata"`
	VersionID   *string           `json:"versionId"`
	ContentType string            `json:"contentType"`
	ID          string            `json:"id"`
	Storage     string            `json:"storage_session_id"`
}

func fullOf(f proto.StoredFile) full {
	return full{summary: summarize(f), Metadata: map[string]string{"content-type": f.MIMEType,
		"original-filename": f.Filename, "original-filename-encoded": "none"}, ContentType: f.MIMEType,
		ID: spellFile(f.ID), Storage: spellSession(f.Scope)}
}

type normalized struct {
	ID           string     `json:"id"`
	Name         string     `json:"name"`
	Storage      string     `json:"storage_session_id"`
	Size         int64      `json:"size"`
	ContentType  string     `json:"contentType"`
	LastModified proto.Time `json:"lastModified"`
}

func normalize(f proto.StoredFile) normalized {
	return normalized{spellFile(f.ID), f.Filename, spellSession(f.Scope), f.SizeBytes, f.MIMEType, f.CreatedAt}
}

// maxListed bounds a list, in files.
const maxListed = 5000

// list lists the files of a session, the oldest first. A session of another owner has none.
func (e *Edge) list(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	scope := unspell(proto.ContainerPrefix, r.PathValue("session"))
	if scope == "" {
		return proto.Errorf(proto.NotFound, "", r.PathValue("session"), "Session not found: %.80q is not the ID of one",
			r.PathValue("session"))
	}
	show := details[r.URL.Query().Get("detail")]
	if show == nil {
		show = func(f proto.StoredFile) any { return objectName(f) }
	}
	out, query := []any{}, files.Query{Scope: scope, Limit: files.MaxLimit}
	for more := true; more && len(out) < maxListed; {
		page, err := e.cfg.Files.List(r.Context(), c.Owner, query)
		if err != nil {
			return err
		}
		for _, f := range page.Files {
			query.AfterID = f.ID
			if !over(f) {
				out = append(out, show(f))
			}
		}
		more = page.More && len(page.Files) > 0
	}
	slices.Reverse(out)
	return api.JSON(w, http.StatusOK, out)
}

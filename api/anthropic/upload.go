package anthropic

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"berth/api"
	"berth/api/forms"
	"berth/files"
	"berth/files/filename"
	"berth/proto"
)

const (
	maxParts      = 64  // of a form; unknown parts are skipped
	maxFieldBytes = 256 // of a text field
)

// upload stores the file of a form. Fields come in any order, so the file is staged while it arrives, and exists only
// after the form was read to its closing boundary and checked.
func (e edge) upload(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	parts, err := forms.Open(r)
	if err != nil {
		return err
	}
	// Every return except after commit drops the staged bytes: a broken upload leaves no file and does not count
	// against a quota.
	f := form{edge: e, r: r, owner: c.Owner}
	defer f.close()
	if err := forms.Each(parts, maxParts, f.readPart); err != nil {
		return err
	}
	stored, err := f.commit()
	if err != nil {
		return err
	}
	// The path has no ID for the audit log.
	api.Note(r.Context(), stored.ID)
	return api.JSON(w, http.StatusOK, describe(stored, shapeOf(r)))
}

// A form is an upload that is being read.
type form struct {
	edge
	r       *http.Request
	owner   string
	staged  files.Pending
	expires time.Duration
}

// close drops what was not committed.
func (f *form) close() {
	if f.staged != nil {
		f.staged.Close()
	}
}

// readPart reads one part. The name of the field decides, not the filename.
func (f *form) readPart(d map[string]string, part forms.Part) error {
	switch d["name"] {
	case "file":
		return f.stageFile(part, d["filename"])
	case "expires_in_seconds":
		return f.readExpiry(part)
	}
	return nil
}

// stageFile stages the file. It makes all checks that need no content first.
func (f *form) stageFile(part forms.Part, name string) error {
	// The client chooses the media type. Without one the store looks at the content, except for clients that expect
	// the hosted service to refuse it.
	up := files.Upload{Owner: f.owner, Filename: name, MIMEType: part.Header.Get("Content-Type")}
	switch {
	case f.staged != nil:
		return proto.Invalid("file", "The form has more than one file.")
	case up.MIMEType == "" && shapeOf(f.r) == shapeLegacy:
		return proto.Invalid("file", "The file part needs a Content-Type.")
	}
	if _, err := filename.Clean(name, up.MIMEType); err != nil {
		return err // before reading up to 500 MB
	}
	staged, err := f.Files.Stage(f.r.Context(), up, part)
	f.staged = staged
	return err
}

// readExpiry checks the range here, too, so that an early field fails early.
func (f *form) readExpiry(part forms.Part) error {
	const field = "expires_in_seconds"
	if f.expires != 0 {
		return proto.Invalid(field, "%s is given twice.", field)
	}
	// Cut, not refused: 256 digits are out of range below.
	text, err := io.ReadAll(io.LimitReader(part, maxFieldBytes))
	if err != nil {
		return err
	}
	// 32 bits, so that the seconds fit a time.Duration.
	seconds, err := strconv.ParseInt(string(text), 10, 32)
	f.expires = time.Duration(seconds) * time.Second
	if err != nil || f.expires < files.MinExpiresIn || f.expires > files.MaxExpiresIn {
		return proto.Invalid(field, "%s must be a whole number from %.0f to %.0f.", field, files.MinExpiresIn.Seconds(),
			files.MaxExpiresIn.Seconds())
	}
	return nil
}

// commit creates the file from all fields together.
func (f *form) commit() (proto.StoredFile, error) {
	if f.staged == nil {
		return proto.StoredFile{}, proto.Invalid("file", "The form has no part named file.")
	}
	// Set it now: the field may have come after the file.
	f.staged.ExpireIn(f.expires)
	return f.staged.Commit(f.r.Context())
}

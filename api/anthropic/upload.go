package anthropic

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"berth/api"
	"berth/files"
	"berth/proto"
)

const (
	maxParts      = 64  // of a form; unknown ones are skipped
	maxFieldBytes = 256 // of a text field
)

// upload stores the file of a form. Fields come in any order, so the file is staged as it streams in
// and exists only once the form has been read to its closing boundary and found right.
func (e edge) upload(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	parts, err := formReader(r)
	if err != nil {
		return err
	}
	// What was staged is dropped on every way out but commit's: a broken upload must leave neither
	// a file nor bytes that count against a quota.
	f := form{edge: e, r: r, owner: c.Owner}
	defer f.close()
	if err := eachPart(parts, maxParts, f.readPart); err != nil {
		return err
	}
	stored, err := f.commit()
	if err != nil {
		return err
	}
	// For the audit log, which cannot take the ID from the path.
	api.Note(r.Context(), stored.ID)
	return api.JSON(w, http.StatusOK, describe(stored, shapeOf(r)))
}

// A form is an upload on its way in.
type form struct {
	edge
	r       *http.Request
	owner   string
	staged  *files.Staged
	expires time.Duration
}

// close drops what was not committed.
func (f *form) close() {
	if f.staged != nil {
		f.staged.Close()
	}
}

// readPart reads a part. Whatever it is called by its filename, the field's name decides.
func (f *form) readPart(d map[string]string, part partReader) error {
	switch d["name"] {
	case "file":
		return f.stageFile(part, d["filename"])
	case "expires_in_seconds":
		return f.readExpiry(part)
	}
	return nil
}

// stageFile stages the file. What can be known to be wrong before its bytes is said before them.
func (f *form) stageFile(part partReader, filename string) error {
	// The media type is the client's word. Without one the store looks at the content, except for
	// clients that know the hosted service to refuse it.
	up := files.Upload{Owner: f.owner, Filename: filename, MIMEType: part.Header.Get("Content-Type")}
	switch {
	case f.staged != nil:
		return invalid("file", "The form has more than one file.")
	case up.MIMEType == "" && shapeOf(f.r) == shapeLegacy:
		return invalid("file", "The file part needs a Content-Type.")
	}
	if _, err := files.CleanName(filename, up.MIMEType); err != nil {
		return err // before 500 MB have come in vain
	}
	staged, err := f.Files.Stage(f.r.Context(), up, part)
	f.staged = staged
	return err
}

// readExpiry checks the range here too, so that a field that comes first fails first.
func (f *form) readExpiry(part partReader) error {
	const field = "expires_in_seconds"
	if f.expires != 0 {
		return invalid(field, "%s is given twice.", field)
	}
	// Cut and not refused: a number of more than 256 digits is no number below either.
	text, err := io.ReadAll(io.LimitReader(part, maxFieldBytes))
	if err != nil {
		return err
	}
	// 32 bits, so that the seconds fit a time.Duration whatever the client wrote.
	seconds, err := strconv.ParseInt(string(text), 10, 32)
	f.expires = time.Duration(seconds) * time.Second
	if err != nil || f.expires < files.MinExpiresIn || f.expires > files.MaxExpiresIn {
		return invalid(field, "%s must be a whole number from %.0f to %.0f.", field, files.MinExpiresIn.Seconds(),
			files.MaxExpiresIn.Seconds())
	}
	return nil
}

// commit makes the file exist with what all fields together say.
func (f *form) commit() (proto.StoredFile, error) {
	if f.staged == nil {
		return proto.StoredFile{}, invalid("file", "The form has no part named file.")
	}
	// Only now: the field may have come behind the file.
	f.staged.Upload.ExpiresIn = f.expires
	return f.staged.Commit(f.r.Context())
}

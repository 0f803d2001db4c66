package librechat

import (
	"context"
	"net/http"

	"berth/api"
	"berth/api/forms"
	"berth/files"
	"berth/proto"
)

// Bounds of an upload.
const (
	maxFiles   = 200 // of one form
	maxFields  = 32  // besides the files: who they are for, which only the application knows
	batchSizes = 4   // a batch as a whole may be as large as that many of the largest files
)

// An uploaded is a file of a form, as the answer names it.
type uploaded struct {
	Status   string `json:"status,omitempty"` // in a batch: success or error
	Filename string `json:"filename"`
	FileID   string `json:"fileId,omitempty"`
	Error    string `json:"error,omitempty"`
}

// An uploadAnswer is the answer to an upload. Older clients call the session session_id.
type uploadAnswer struct {
	Message   string     `json:"message"`
	Storage   string     `json:"storage_session_id"`
	SessionID string     `json:"session_id"`
	Files     []uploaded `json:"files"`
	Succeeded *int       `json:"succeeded,omitempty"`
	Failed    *int       `json:"failed,omitempty"`
}

// A form is an upload that is being read. Its files belong to a session of their own.
type form struct {
	edge  *Edge
	ctx   context.Context
	owner string
	scope string
	batch bool // a file that cannot be stored does not fail the others
	files []formFile
}

// A formFile is a file that has arrived, or why it was refused.
type formFile struct {
	name   string
	staged files.Pending
	err    error
}

// upload stores the files of a form: all of them or none.
func (e *Edge) upload(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	f, err := e.readForm(r, c, false)
	if err != nil {
		return err
	}
	defer f.close()
	a := uploadAnswer{Message: "success", Storage: spellSession(f.scope), SessionID: spellSession(f.scope)}
	var made []string
	for _, file := range f.files {
		stored, err := file.staged.Commit(f.ctx)
		if err != nil {
			f.undo(made)
			return err
		}
		made = append(made, stored.ID)
		a.Files = append(a.Files, uploaded{Filename: file.name, FileID: spellFile(stored.ID)})
	}
	for _, id := range made {
		api.Note(f.ctx, id)
	}
	return api.JSON(w, http.StatusOK, a)
}

// uploadBatch stores the files of a form that can be stored, and says of each what became of it.
func (e *Edge) uploadBatch(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	f, err := e.readForm(r, c, true)
	if err != nil {
		return err
	}
	defer f.close()
	a := uploadAnswer{Message: "success", Storage: spellSession(f.scope), SessionID: spellSession(f.scope)}
	good, bad := 0, 0
	for _, file := range f.files {
		one := uploaded{Status: "error", Filename: file.name}
		err := file.err
		if err == nil {
			var stored proto.StoredFile
			if stored, err = file.staged.Commit(f.ctx); err == nil {
				one.Status, one.FileID = "success", spellFile(stored.ID)
				api.Note(f.ctx, stored.ID)
			}
		}
		if good++; err != nil {
			good, bad, one.Error = good-1, bad+1, proto.AsError(err).Message
		}
		a.Files = append(a.Files, one)
	}
	a.Succeeded, a.Failed = &good, &bad
	status := http.StatusOK
	switch {
	case good == 0:
		a.Message, status = "error", http.StatusBadRequest
	case bad > 0:
		a.Message = "partial_success"
	}
	return api.JSON(w, status, a)
}

// readForm reads a form to its end. The caller closes it.
func (e *Edge) readForm(r *http.Request, c api.Caller, batch bool) (*form, error) {
	parts, err := forms.Open(r)
	if err != nil {
		return nil, err
	}
	f := &form{edge: e, ctx: r.Context(), owner: c.Owner, scope: proto.NewID(proto.ContainerPrefix), batch: batch}
	if err = forms.Each(parts, maxFiles+maxFields, f.readPart); err == nil && len(f.files) == 0 {
		err = proto.Invalid("file", "No files provided: the form has no part with a filename")
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// readPart reads one part. Parts without a filename say who the files are for; here, the API key does.
func (f *form) readPart(d map[string]string, part forms.Part) error {
	sent, isFile := d["filename"]
	if !isFile {
		return nil
	}
	if len(f.files) == maxFiles {
		return proto.Errorf(proto.TooLarge, "", "file", "The form has more than %d files; send the others in another",
			maxFiles)
	}
	file := formFile{name: sent}
	name, err := cleanName(sent)
	if err == nil {
		file.name = name
		file.staged, err = f.edge.cfg.Files.Stage(f.ctx, files.Upload{Owner: f.owner, Filename: name, Tree: true,
			MIMEType: part.Header.Get("Content-Type"), Scope: f.scope, ExpiresIn: keepTime}, part)
	}
	if code := proto.CodeOf(err); err != nil && (!f.batch || code == proto.Internal || code == proto.Canceled) {
		return err
	}
	file.err = err
	f.files = append(f.files, file)
	return nil
}

// undo removes files that were stored before another failed.
func (f *form) undo(ids []string) {
	for _, id := range ids {
		if err := f.edge.cfg.Files.Delete(context.WithoutCancel(f.ctx), f.owner, id); err != nil {
			f.edge.cfg.Log.Warn("removing a file of an upload that failed", "file", id, "error", err)
		}
	}
}

// close drops what was not committed.
func (f *form) close() {
	for _, file := range f.files {
		if file.staged != nil {
			file.staged.Close()
		}
	}
}

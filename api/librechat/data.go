package librechat

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/files"
	"berth/files/filename"
	"berth/proto"
	"berth/session"
	"berth/session/filework"
)

// dataDir is the working directory of code, and where clients say that files are.
const dataDir = "/mnt/data"

// makeData makes the working directory, for root.
const makeData = `mkdir -p /mnt/data && chown 1000:1000 /mnt/data`

// Bounds of one run.
const (
	maxInputs  = 500  // files of earlier sessions
	maxOutputs = 100  // new or changed files that are stored
	maxWalked  = 5000 // files in the working directory that are looked at
)

// A fileRef names a stored file: in requests an input, in answers what a run left. Older clients call the session
// session_id.
type fileRef struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Storage   string    `json:"storage_session_id,omitempty"`
	SessionID string    `json:"session_id,omitempty"`
	Inherited bool      `json:"inherited,omitempty"` // an input that is as it was
	From      *modified `json:"modified_from,omitempty"`
}

// modified names the input that a file was before.
type modified struct {
	ID      string `json:"id"`
	Storage string `json:"storage_session_id"`
}

// An input is a stored file with its name below the working directory.
type input struct {
	ref  fileRef // as the client named it
	id   string
	name string
}

// inputs finds the stored files that a request names. Each must be of the session that it is said to be of.
func (e *Edge) inputs(ctx context.Context, owner string, refs []fileRef) ([]input, error) {
	if len(refs) > maxInputs {
		return nil, proto.Errorf(proto.TooLarge, "", "files", "files has %d entries; %d is the limit", len(refs),
			maxInputs)
	}
	list := make([]input, 0, len(refs))
	for i, ref := range refs {
		spelled := ref.Storage
		if spelled == "" {
			spelled = ref.SessionID
		}
		f, err := e.find(ctx, owner, spelled, ref.ID)
		if err != nil {
			return nil, err
		}
		name := ref.Name
		if name == "" {
			name = f.Filename
		}
		if name, err = cleanName(name); err != nil {
			at := fmt.Sprintf("files.%d.name", i)
			return nil, proto.Invalid(at, "%s: %s", at, proto.AsError(err).Message)
		}
		list = append(list, input{ref: fileRef{ID: ref.ID, Storage: spelled}, id: f.ID, name: name})
	}
	return list, nil
}

// cleanName returns the name of a file below the working directory. It refuses one that leads elsewhere, and that of
// the file with the code.
func cleanName(name string) (string, error) {
	name = filename.FromTree(strings.TrimPrefix(name, dataDir+"/"))
	if err := filename.CheckPath(name); err != nil {
		return "", err
	}
	if ours(name) {
		return "", proto.Invalid("filename", "names that begin with %s are reserved", mainFile)
	}
	return name, nil
}

// ours reports whether a file in the working directory is the code, or made of it.
func ours(name string) bool { return strings.HasPrefix(name, mainFile) }

// place puts inputs into the working directory. Of several with one name, the last counts.
func (e *Edge) place(ctx context.Context, s *session.Session, inputs []input) error {
	for _, in := range inputs {
		content, f, err := e.cfg.Files.Open(ctx, s.Owner(), in.id)
		if err != nil {
			return err
		}
		_, err = s.WriteFile(ctx, proto.UserDefault, dataDir+"/"+in.name, session.WriteOptions{Mode: 0o644,
			Size: f.SizeBytes}, content)
		content.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// A snapshot is what is in the working directory at a moment: files by their names below it.
type snapshot struct {
	files map[string]proto.FileInfo
	more  bool
}

// look takes a snapshot of the working directory, without the code and what Python makes of modules.
func look(ctx context.Context, s *session.Session) (snapshot, error) {
	w, err := filework.Walk(ctx, s.Files, dataDir, maxWalked, "")
	if proto.CodeOf(err) == proto.NotFound { // the code removed it
		return snapshot{}, nil
	}
	out := snapshot{files: map[string]proto.FileInfo{}, more: w.Truncated}
	for _, fi := range w.Files {
		name := strings.TrimPrefix(fi.Path, dataDir+"/")
		if fi.Type == proto.TypeFile && !ours(name) && !strings.Contains("/"+name, "/__pycache__/") {
			out.files[name] = fi
		}
	}
	return out, err
}

// A delivery says in the words of clients that files were not stored.
type delivery struct {
	Code      string `json:"code"`
	Status    string `json:"status"`
	Attempted int    `json:"attempted"`
	Delivered int    `json:"delivered"`
	Failed    int    `json:"failed"`
}

// An outcome is what a run left in the working directory.
type outcome struct {
	files    []fileRef
	deleted  []string // inputs that the code removed
	delivery *delivery
	notes    []string // for people and models: what was not stored, and why
}

// collect stores the files that are new or changed since before, and names the inputs that are as they were.
func (e *Edge) collect(ctx context.Context, s *session.Session, inputs []input, before snapshot) (o outcome,
	err error) {
	after, err := look(ctx, s)
	if err != nil {
		return o, err
	}
	given := map[string]input{}
	for _, in := range inputs {
		given[in.name] = in
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		in := given[name]
		if now, ok := after.files[name]; !ok && !after.more {
			o.deleted = append(o.deleted, name)
		} else if ok && same(now, before.files[name]) && in.ref.Storage != "" {
			o.files = append(o.files, fileRef{ID: in.ref.ID, Name: name, Storage: in.ref.Storage,
				SessionID: in.ref.Storage, Inherited: true})
		}
	}
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(after.files)) {
		if was, ok := before.files[name]; !ok || !same(after.files[name], was) {
			changed = append(changed, name)
		}
	}
	e.store(ctx, s, changed, after, given, &o)
	if after.more {
		o.notes = append(o.notes, fmt.Sprintf("%s has more than %d files; only these were looked at", dataDir,
			maxWalked))
	}
	return o, nil
}

// store makes stored files of those in the working directory with these names.
func (e *Edge) store(ctx context.Context, s *session.Session, names []string, after snapshot, given map[string]input,
	o *outcome) {
	made := 0
	for i, name := range names {
		if i == maxOutputs {
			o.notes = append(o.notes, fmt.Sprintf("%d files in %s were not stored: one run stores at most %d; pack "+
				"many files into an archive", len(names)-i, dataDir, maxOutputs))
			break
		}
		id, err := e.storeOne(ctx, s, name, after.files[name])
		if err != nil {
			o.notes = append(o.notes, fmt.Sprintf("%s/%.200s was not stored: %s", dataDir, name,
				proto.AsError(err).Message))
			continue
		}
		made++
		ref := fileRef{ID: id, Name: name, Storage: spellSession(s.ID()), SessionID: spellSession(s.ID())}
		if in, ok := given[name]; ok {
			ref.From = &modified{in.ref.ID, in.ref.Storage}
		}
		o.files = append(o.files, ref)
	}
	if failed := len(names) - made; failed > 0 {
		o.delivery = &delivery{"artifact_delivery_failed", "partial", len(names), made, failed}
		if made == 0 {
			o.delivery.Status = "failed"
		}
	}
}

// storeOne makes a stored file, as the user of the code, and returns its ID as clients take it.
func (e *Edge) storeOne(ctx context.Context, s *session.Session, name string, fi proto.FileInfo) (string, error) {
	path := fi.Path
	if fi.RawPath != nil {
		path = string(fi.RawPath)
	}
	r, now, err := s.ReadFile(ctx, proto.UserDefault, path, 0, -1)
	if err != nil {
		return "", err
	}
	defer r.Close()
	staged, err := e.cfg.Files.Stage(ctx, files.Upload{Owner: s.Owner(), Filename: filename.FromTree(name), Tree: true,
		Downloadable: true, Scope: s.ID(), SizeBytes: now.SizeBytes, ExpiresIn: keepTime}, r)
	if err != nil {
		return "", err
	}
	defer staged.Close()
	f, err := staged.Commit(ctx)
	return spellFile(f.ID), err
}

// same reports whether a file has not changed between two snapshots. Code cannot set the time that tells it.
func same(a, b proto.FileInfo) bool {
	return a.SizeBytes == b.SizeBytes && a.ChangedAt.Equal(b.ChangedAt.Time) && !a.ChangedAt.Equal(time.Time{})
}

package artifacts

import (
	"context"
	"fmt"
	"path"
	"strings"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
)

// inputs says which stored file has which name in a workspace's $INPUT_DIR.
type inputs map[string]string // name → file ID

// Begin puts stored files into $INPUT_DIR under their own names. One that is there already is not
// copied again; two different ones of the same name get different names. If one cannot be had, those
// that this call placed are removed.
func (js *Jobs) Begin(ctx context.Context, s *session.Session, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, done, err := js.lockJob(ctx, s.WorkspaceID(), "."+proto.InputsDir) // no job can have this name
	if err != nil {
		return err
	}
	defer done()
	// Read afresh each time and not kept with the job: the turn makes sure that nobody else writes
	// it meanwhile.
	in, err := js.inputs(s.WorkspaceID())
	if err != nil {
		return err
	}
	placed, err := js.placeAll(ctx, s, in, ids)
	if err == nil {
		err = js.recordInputs(s.WorkspaceID(), in)
	}
	if err != nil {
		js.unplace(ctx, s, placed)
	}
	return err
}

// placeAll copies the files, and says which it did, up to the one that failed.
func (js *Jobs) placeAll(ctx context.Context, s *session.Session, in inputs, ids []string) (placed []string,
	err error) {
	for _, id := range ids {
		name, fresh, err := js.place(ctx, s, in, id)
		if err != nil {
			return placed, err
		}
		if fresh {
			placed = append(placed, name)
		}
		in[name] = id
	}
	return placed, nil
}

// recordInputs waits for the ledger, unlike the books of jobs: no look at the directory could tell
// later which stored file lies under which name.
func (js *Jobs) recordInputs(workspace string, in inputs) error {
	return js.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketInputs, workspace, in) })
}

// inputs is what the ledger knows; nothing known is an empty map, never nil.
func (js *Jobs) inputs(workspace string) (inputs, error) {
	in := inputs{}
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucketInputs, workspace, &in)
		return err
	})
	return in, err
}

// place copies one stored file into the container, unless it is there. What the code in the container has
// put under its name, or made of it, is left alone.
func (js *Jobs) place(ctx context.Context, s *session.Session, in inputs, id string) (name string, fresh bool,
	err error) {
	// Opened first even if the file is there already: it must still exist and be the owner's.
	r, f, err := js.cfg.Files.Open(ctx, s.Owner(), id)
	if err != nil {
		return "", false, err
	}
	defer r.Close()
	if name = in.nameOf(id); name != "" {
		// A file is copied whole or not at all, so whatever is there is what the code made of it,
		// and it keeps that. Only what was removed is put there again.
		_, err := s.Stat(ctx, proto.UserDefault, proto.InputDir+"/"+name)
		if proto.CodeOf(err) != proto.NotFound {
			return name, false, err
		}
	} else if name, err = in.freeName(ctx, s, f.Filename); err != nil {
		return "", false, err
	}
	_, err = s.WriteFile(ctx, proto.UserDefault, proto.InputDir+"/"+name, session.WriteOptions{Mode: 0o644}, r)
	return name, err == nil, err
}

// nameOf is the name that a file has, or "".
func (in inputs) nameOf(id string) string {
	// A walk over the map: a workspace has few inputs, and a second map would have to be kept in
	// step.
	for name, has := range in {
		if has == id {
			return name
		}
	}
	return ""
}

// maxName bounds a file's name, in bytes, as the kernel does.
const maxName = 255

// freeName is a name for a file that has none yet: its own, or with a number if that is taken, cut to what
// a file system takes.
func (in inputs) freeName(ctx context.Context, s *session.Session, filename string) (string, error) {
	// The Files API takes them as names; a file system has them already.
	if filename == "." || filename == ".." {
		filename = "unnamed"
	}
	ext := path.Ext(filename)
	stem := strings.TrimSuffix(filename, ext)
	// A name that is nearly all extension is cut like any other; else nothing of the stem would be
	// left.
	if len(ext) > maxName/2 {
		stem, ext = filename, ""
	}
	for n := 1; ; n++ {
		end := ext
		if n > 1 {
			end = fmt.Sprintf(" (%d)%s", n, ext)
		}
		// Cut by bytes, which may fall inside a character: what is left of it is dropped.
		name := strings.ToValidUTF8(stem[:min(len(stem), maxName-len(end))], "") + end
		// Names that were given once stay given, even if the code has removed the file: the ledger
		// has one file for a name.
		if in[name] != "" {
			continue
		}
		// The code may have put something of its own under the name, which must not be
		// overwritten.
		_, err := s.Stat(ctx, proto.UserDefault, proto.InputDir+"/"+name)
		if proto.CodeOf(err) == proto.NotFound {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
}

// unplace takes back what a failed Begin had copied.
func (js *Jobs) unplace(ctx context.Context, s *session.Session, names []string) {
	// The reason for the failure is often that the caller has gone; what was placed is taken back
	// all the same.
	ctx = context.WithoutCancel(ctx)
	for _, n := range names {
		// Left behind it would do no harm but take room, so the log is all that learns of it.
		if err := s.RemoveFile(ctx, proto.UserDefault, proto.InputDir+"/"+n, false); err != nil {
			js.cfg.Log.Warn("taking back an input file", "name", n, "error", err)
		}
	}
}

// Inputs are the paths in the container of the stored files that were put into $INPUT_DIR, by their IDs.
func (js *Jobs) Inputs(s *session.Session) (map[string]string, error) {
	in, err := js.inputs(s.WorkspaceID())
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for name, id := range in {
		paths[id] = proto.InputDir + "/" + name
	}
	return paths, nil
}

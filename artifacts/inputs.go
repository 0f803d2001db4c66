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

// inputs maps names in a workspace's $INPUT_DIR to stored files.
type inputs map[string]string // name → file ID

// Begin puts stored files into $INPUT_DIR under their own names. It does not copy a file that is there, and gives
// different files of one name different names. If a file cannot be had, Begin removes those that it copied.
func (js *Jobs) Begin(ctx context.Context, s *session.Session, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, done, err := js.lockJob(ctx, s.WorkspaceID(), "."+proto.InputsDir) // no job can have this name
	if err != nil {
		return err
	}
	defer done()
	// Read each time and not kept with the job: the lock keeps other writers out.
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

// placeAll copies the files and returns the names that it copied, up to the first failure.
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

// recordInputs waits for the ledger, unlike changes of manifests: the directory does not tell later which stored file
// has which name.
func (js *Jobs) recordInputs(workspace string, in inputs) error {
	return js.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketInputs, workspace, in) })
}

// inputs reads the ledger; without an entry it is an empty map, never nil.
func (js *Jobs) inputs(workspace string) (inputs, error) {
	in := inputs{}
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucketInputs, workspace, &in)
		return err
	})
	return in, err
}

// place copies one stored file into the container, unless it is there. It leaves files alone that code in the
// container made or changed.
func (js *Jobs) place(ctx context.Context, s *session.Session, in inputs, id string) (name string, fresh bool,
	err error) {
	// Opened even if the copy is there: the stored file must still exist and be the owner's.
	r, f, err := js.cfg.Files.Open(ctx, s.Owner(), id)
	if err != nil {
		return "", false, err
	}
	defer r.Close()
	if name = in.nameOf(id); name != "" {
		// A copy appears whole or not at all, so what is there is the file as the code left it. Only a removed file
		// is copied again.
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

// nameOf is the name of a file, or "".
func (in inputs) nameOf(id string) string {
	// A walk suffices: a workspace has few inputs.
	for name, has := range in {
		if has == id {
			return name
		}
	}
	return ""
}

// maxName is the kernel's bound of a file name, in bytes.
const maxName = 255

// freeName is a new name for a file: its own, with a number if that is taken, cut to maxName.
func (in inputs) freeName(ctx context.Context, s *session.Session, filename string) (string, error) {
	// The Files API allows them as names; file systems reserve them.
	if filename == "." || filename == ".." {
		filename = "unnamed"
	}
	ext := path.Ext(filename)
	stem := strings.TrimSuffix(filename, ext)
	// A name that is mostly extension is cut like any other, or nothing of the stem would be left.
	if len(ext) > maxName/2 {
		stem, ext = filename, ""
	}
	for n := 1; ; n++ {
		end := ext
		if n > 1 {
			end = fmt.Sprintf(" (%d)%s", n, ext)
		}
		// The cut may fall inside a character, whose rest is dropped.
		name := strings.ToValidUTF8(stem[:min(len(stem), maxName-len(end))], "") + end
		// A name stays taken even if the code has removed the file: the ledger has one file for a name.
		if in[name] != "" {
			continue
		}
		// The code may have a file of its own with that name, which must not be overwritten.
		_, err := s.Stat(ctx, proto.UserDefault, proto.InputDir+"/"+name)
		if proto.CodeOf(err) == proto.NotFound {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
}

// unplace removes what a failed Begin copied.
func (js *Jobs) unplace(ctx context.Context, s *session.Session, names []string) {
	// Often the request has ended, which caused the failure.
	ctx = context.WithoutCancel(ctx)
	for _, n := range names {
		// A copy left behind only takes room, so it is only logged.
		if err := s.RemoveFile(ctx, proto.UserDefault, proto.InputDir+"/"+n, false); err != nil {
			js.cfg.Log.Warn("taking back an input file", "name", n, "error", err)
		}
	}
}

// Inputs are the paths in the container of the stored files in $INPUT_DIR, by ID.
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

package artifacts

import (
	"context"
	"fmt"
	"path"
	"strings"

	"berth/ledger"
	"berth/proto"
	"berth/session"
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
	_, done, err := js.take(ctx, s.WorkspaceID(), "."+proto.InputsDir) // no job can have this name
	if err != nil {
		return err
	}
	defer done()
	in, err := js.inputs(s.WorkspaceID())
	if err != nil {
		return err
	}
	var placed []string
	for _, id := range ids {
		name, fresh, err := js.place(ctx, s, in, id)
		if err != nil {
			js.unplace(ctx, s, placed)
			return err
		}
		if fresh {
			placed = append(placed, name)
		}
		in[name] = id
	}
	return js.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketInputs, s.WorkspaceID(), in) })
}

func (js *Jobs) inputs(workspace string) (inputs, error) {
	in := inputs{}
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucketInputs, workspace, &in)
		return err
	})
	return in, err
}

// place copies one stored file into the container, unless it is there.
func (js *Jobs) place(ctx context.Context, s *session.Session, in inputs, id string) (name string, fresh bool, err error) {
	r, f, err := js.cfg.Files.Open(ctx, s.Owner(), id)
	if err != nil {
		return "", false, err
	}
	defer r.Close()
	name = in.nameFor(id, f.Filename)
	at := proto.InputDir + "/" + name
	fi, err := s.Stat(ctx, proto.UserDefault, at)
	if err == nil && in[name] == id && fi.Type == proto.TypeFile && fi.SizeBytes == f.SizeBytes {
		return name, false, nil
	}
	_, err = s.WriteFile(ctx, proto.UserDefault, at, 0o644, r)
	return name, err == nil, err
}

// nameFor is the name a file has or gets: its own, or with a number if another has that.
func (in inputs) nameFor(id, filename string) string {
	for name, has := range in {
		if has == id {
			return name
		}
	}
	if filename == "." || filename == ".." {
		filename = "unnamed"
	}
	ext := path.Ext(filename)
	stem := strings.TrimSuffix(filename, ext)
	name := filename
	for n := 2; in[name] != ""; n++ {
		name = fmt.Sprintf("%s (%d)%s", stem, n, ext)
	}
	return name
}

// unplace takes back what a failed Begin had copied.
func (js *Jobs) unplace(ctx context.Context, s *session.Session, names []string) {
	ctx = context.WithoutCancel(ctx)
	for _, n := range names {
		if err := s.RemoveFile(ctx, proto.UserDefault, proto.InputDir+"/"+n, false); err != nil {
			js.cfg.Log.Warn("taking back an input file", "name", n, "error", err)
		}
	}
}

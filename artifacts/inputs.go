package artifacts

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"strings"

	"berth/proto"
	"berth/session"
	"berth/state/keylock"
	"berth/state/ledger"
)

// inputs puts stored files into the $INPUT_DIR of a workspace, and records which file has which name there.
type inputs struct {
	files  FileStore
	ledger *ledger.DB
	log    *slog.Logger
	locks  keylock.Set // by workspace ID
}

// names maps names in a workspace's $INPUT_DIR to file IDs.
type names map[string]string

// Begin puts stored files into $INPUT_DIR under their own names, with the directories that these have. It does not copy
// a file that is there, and gives different files of one name different names. If a file cannot be had, Begin removes
// those that it copied.
func (in *inputs) Begin(ctx context.Context, s session.Files, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	unlock, err := in.locks.Lock(ctx, s.WorkspaceID())
	if err != nil {
		return err
	}
	defer unlock()
	taken, err := in.names(s.WorkspaceID())
	if err != nil {
		return err
	}
	var placed []string
	for _, id := range ids {
		name, fresh, err := in.place(ctx, s, taken, id)
		if err != nil {
			in.remove(ctx, s, placed)
			return err
		}
		if fresh {
			placed = append(placed, name)
		}
		taken[name] = id
	}
	// Wait for the ledger, unlike changes of manifests: the directory does not tell later which stored file has which
	// name.
	err = in.ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketInputs, s.WorkspaceID(), taken) })
	if err != nil {
		in.remove(ctx, s, placed)
	}
	return err
}

// names reads the ledger; without an entry it is an empty map, never nil.
func (in *inputs) names(workspace string) (names, error) {
	n := names{}
	err := in.ledger.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucketInputs, workspace, &n)
		return err
	})
	return n, err
}

// place copies one stored file into the container, unless it is there. It leaves files alone that code in the
// container made or changed.
func (in *inputs) place(ctx context.Context, s session.Files, taken names, id string) (name string, fresh bool,
	err error) {
	// Opened even if the copy is there: the stored file must still exist and be the owner's.
	r, f, err := in.files.Open(ctx, s.Owner(), id)
	if err != nil {
		return "", false, err
	}
	defer r.Close()
	for n, has := range taken { // a workspace has few inputs
		if has == id {
			name = n
		}
	}
	if name != "" {
		// A copy appears whole or not at all, so what is there is the file as the code left it. Only a removed file
		// is copied again, under another name if the code made a file of a directory on the way.
		_, err := s.Stat(ctx, proto.UserDefault, proto.InputDir+"/"+name)
		switch {
		case proto.CodeOf(err) == proto.InvalidArgument && strings.Contains(name, "/"):
			delete(taken, name)
			name = ""
		case proto.CodeOf(err) != proto.NotFound:
			return name, false, err
		}
	}
	if name == "" {
		if name, err = taken.free(ctx, s, f.Filename); err != nil {
			return "", false, err
		}
	}
	_, err = s.WriteFile(ctx, proto.UserDefault, proto.InputDir+"/"+name, session.WriteOptions{Mode: 0o644}, r)
	return name, err == nil, err
}

// maxName is the kernel's bound of a file name, in bytes.
const maxName = 255

// free returns a new name for a file: its own, with a number if that is taken, cut to maxName. The name of a file from
// a container may have directories. These are shared, unless something else has the name of one: then it gets the
// number.
func (taken names) free(ctx context.Context, s session.Files, filename string) (string, error) {
	name := ""
	parts := strings.Split(filename, "/")
	for i, part := range parts {
		last := i == len(parts)-1
		for n := 1; ; n++ {
			next := path.Join(name, numbered(part, n))
			// A name stays taken even if the code has removed the file: the ledger has one file for a name.
			if taken[next] != "" || last && taken.hasBelow(next) {
				continue
			}
			// The code may have a file of its own with that name, which must not be overwritten, or a link that leads
			// elsewhere.
			fi, err := s.Stat(ctx, proto.UserDefault, proto.InputDir+"/"+next)
			if err != nil && proto.CodeOf(err) != proto.NotFound {
				return "", err
			}
			if err != nil || !last && fi.Type == proto.TypeDirectory {
				name = next
				break
			}
		}
	}
	return name, nil
}

// hasBelow reports whether a file's name has the directory dir.
func (taken names) hasBelow(dir string) bool {
	for name := range taken {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// numbered returns the nth choice for a name, cut to maxName.
func numbered(name string, n int) string {
	// Earlier versions stored files with these names; file systems reserve them.
	if name == "." || name == ".." {
		name = "unnamed"
	}
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	// A name that is mostly extension is cut like any other, or nothing of the stem would be left.
	if len(ext) > maxName/2 {
		stem, ext = name, ""
	}
	if n > 1 {
		ext = fmt.Sprintf(" (%d)%s", n, ext)
	}
	// The cut may fall inside a character, whose rest is dropped.
	return strings.ToValidUTF8(stem[:min(len(stem), maxName-len(ext))], "") + ext
}

// remove removes what a failed Begin copied.
func (in *inputs) remove(ctx context.Context, s session.Files, names []string) {
	ctx = context.WithoutCancel(ctx) // often the request has ended, which caused the failure
	for _, n := range names {
		// A copy left behind only takes room, so it is only logged.
		if err := s.RemoveFile(ctx, proto.UserDefault, proto.InputDir+"/"+n, false); err != nil {
			in.log.Warn("removing an input file after a failure", "name", n, "error", err)
		}
		// Its directories too, up to one that has other files.
		for dir := path.Dir(n); dir != "."; dir = path.Dir(dir) {
			if s.RemoveFile(ctx, proto.UserDefault, proto.InputDir+"/"+dir, false) != nil {
				break
			}
		}
	}
}

// Inputs returns the paths in the container of the stored files in $INPUT_DIR, by ID.
func (in *inputs) Inputs(s *session.Session) (map[string]string, error) {
	taken, err := in.names(s.WorkspaceID())
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for name, id := range taken {
		paths[id] = proto.InputDir + "/" + name
	}
	return paths, nil
}

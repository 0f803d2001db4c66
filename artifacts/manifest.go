package artifacts

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"berth/proto"
	"berth/session"
	"berth/session/filework"
	"berth/state/ledger"
)

// manifest builds a job's manifest from its record, the ledger and the newest execs.
func (js *Jobs) manifest(j *job) (m proto.Manifest, err error) {
	m = j.about()
	for _, p := range j.paths() { // in order, since equal manifests should be equal bytes
		m.Files = append(m.Files, j.files[p].Artifact)
	}
	m.Execs, err = js.log(j)
	return m, err
}

// about is the manifest without its lists.
func (j *job) about() proto.Manifest {
	return proto.Manifest{
		JobID: j.rec.ID, WorkspaceID: j.rec.Workspace, ContainerID: j.rec.Container, Truncated: j.rec.Truncated,
		CreatedAt: proto.At(j.rec.Created), UpdatedAt: proto.At(j.rec.Updated),
		Files: []proto.Artifact{}, Execs: []proto.JobExec{},
	}
}

// log returns the log of commands.
func (js *Jobs) log(j *job) ([]proto.JobExec, error) {
	list := []proto.JobExec{}
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucketExecs, j.key+"/", func(_ string, e proto.JobExec) { list = append(list, e) })
	})
	// The ledger writes in batches, so the newest execs may not be in it yet. They are appended here if the ledger
	// does not have them. A look at the last entries is enough, since newest has at most maxNewest.
	for _, e := range j.newest {
		if !slices.ContainsFunc(list[max(0, len(list)-2*maxNewest):], func(x proto.JobExec) bool {
			return x.ID == e.ID
		}) {
			list = append(list, e)
		}
	}
	return list[max(0, len(list)-MaxExecs):], err
}

// Indentation in the copy of a manifest, and that of an item in one of its lists.
const (
	indent     = "  "
	indentItem = indent + indent
)

// manifestText is json.MarshalIndent of the manifest, for the container. Only what is new is encoded.
func (js *Jobs) manifestText(j *job) ([]byte, error) {
	about, err := json.MarshalIndent(j.about(), "", indent)
	if err != nil {
		return nil, err
	}
	if err := js.encodeLog(j); err != nil {
		return nil, err
	}
	files := make([][]byte, len(j.files))
	size := len(about)
	for i, p := range j.paths() {
		if files[i], err = j.text(p); err != nil {
			return nil, err
		}
		size += len(files[i]) + len(indentItem) + len(",\n")
	}
	var text bytes.Buffer
	text.Grow(size)
	for _, list := range []struct {
		empty string
		items [][]byte
	}{{`"execs": []`, j.lines}, {`"files": []`, files}} {
		before, after, _ := bytes.Cut(about, []byte(list.empty))
		text.Write(before)
		about = after
		if len(list.items) == 0 {
			text.WriteString(list.empty)
			continue
		}
		text.WriteString(strings.TrimSuffix(list.empty, "]"))
		for i, item := range list.items {
			if i > 0 {
				text.WriteByte(',')
			}
			text.WriteString("\n" + indentItem)
			text.Write(item)
		}
		text.WriteString("\n" + indent + "]")
	}
	text.Write(about)
	text.WriteByte('\n')
	return text.Bytes(), nil
}

// text is what the copy of the manifest says of a file.
func (x *index) text(path string) (text []byte, err error) {
	text, ok := x.texts[path]
	if !ok {
		if text, err = json.MarshalIndent(x.files[path].Artifact, indentItem, indent); err == nil {
			x.texts[path] = text
		}
	}
	return text, err
}

// encodeLog makes sure that lines has the whole log of commands.
func (js *Jobs) encodeLog(j *job) error {
	if j.lines != nil {
		return nil
	}
	list, err := js.log(j)
	if err != nil {
		return err
	}
	j.lines = [][]byte{}
	for _, e := range list {
		j.addLine(e)
	}
	return nil
}

// addLine adds a command to lines, if they are known.
func (j *job) addLine(e proto.JobExec) {
	if j.lines == nil {
		return
	}
	text, err := json.MarshalIndent(e, indentItem, indent)
	if err != nil { // which no text, number or time of a command can cause
		j.lines = nil
		return
	}
	j.lines = append(j.lines, text)
	j.lines = j.lines[max(0, len(j.lines)-MaxExecs):]
}

// writeManifest writes a copy of the manifest for programs in the container, if the job's directory still exists. A
// directory without execs is perhaps no job's.
func (js *Jobs) writeManifest(ctx context.Context, s session.Files, as string, j *job) error {
	if j.absent {
		return nil
	}
	text, err := js.manifestText(j)
	if err != nil || len(j.lines) == 0 {
		return err
	}
	err = js.write(ctx, s, as, proto.ManifestPath(j.rec.ID), text)
	j.listed = err == nil
	if err == nil {
		js.ignore(ctx, s, as, j, proto.OwnDir)
	}
	return err
}

// write writes a file of ours as the default user. If a directory refuses that user and the exec ran as root, it
// writes as root.
func (js *Jobs) write(ctx context.Context, s session.Files, as, path string, data []byte) error {
	// WriteManifest and not WriteFile: code in the sandbox owns the directory and may put links into it, and
	// WriteFile would report the write as a change by the API.
	err := filework.WriteManifest(ctx, s, proto.UserDefault, path, bytes.NewReader(data))
	if proto.CodeOf(err) == proto.NotFound && s.Mkdir(ctx, proto.UserDefault, proto.OwnDir) == nil {
		err = filework.WriteManifest(ctx, s, proto.UserDefault, path, bytes.NewReader(data))
	}
	// Only if the exec itself ran as root: an exec of another user must not cause a write with root's rights into a
	// directory that is closed to that user.
	if proto.CodeOf(err) == proto.PermissionDenied && as == proto.UserRoot {
		err = filework.WriteManifest(ctx, s, as, path, bytes.NewReader(data))
	}
	return err
}

// ignoreFile makes git ignore the directory that it is in.
const ignoreFile = ".gitignore"

// ignore makes git ignore a directory of ours: a workspace or a job's directory may be a repository.
func (js *Jobs) ignore(ctx context.Context, s session.Files, as string, j *job, dir string) {
	if j.ignored[dir] {
		return
	}
	if err := js.write(ctx, s, as, dir+"/"+ignoreFile, []byte("*\n")); err != nil {
		js.cfg.Log.Warn("having git ignore a directory", "job", j.key, "error", err)
		return
	}
	if j.ignored == nil {
		j.ignored = map[string]bool{}
	}
	j.ignored[dir] = true
}

// migrate removes the manifest.json that an earlier version wrote beside the files of the job, once after the job was
// loaded, and returns the list without it. A file of that name that another program wrote stays.
func (js *Jobs) migrate(ctx context.Context, s session.Files, j *job, list []proto.FileInfo) []proto.FileInfo {
	if j.migrated {
		return list
	}
	j.migrated = true
	path := proto.JobDir(j.rec.ID) + "/manifest.json"
	i := slices.IndexFunc(list, func(fi proto.FileInfo) bool { return fi.Path == path && fi.Type == proto.TypeFile })
	if i < 0 {
		return list
	}
	r, _, err := filework.ReadForJob(ctx, s, proto.UserDefault, path)
	if err != nil {
		return list
	}
	defer r.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(r, head) // a shorter file is no manifest
	if !bytes.HasPrefix(head[:n], []byte("{\n  \"job_id\": \""+j.rec.ID+"\",\n  \"workspace_id\": \"")) ||
		filework.RemoveManifest(ctx, s, proto.UserDefault, path) != nil {
		return list
	}
	return slices.Delete(list, i, i+1)
}

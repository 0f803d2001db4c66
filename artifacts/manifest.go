package artifacts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"

	"berth/proto"
	"berth/session"
	"berth/session/filework"
	"berth/state/ledger"
)

// manifest builds a job's manifest from its record, the ledger and the newest execs.
func (js *Jobs) manifest(j *job) (proto.Manifest, error) {
	m := proto.Manifest{
		JobID: j.rec.ID, WorkspaceID: j.rec.Workspace, ContainerID: j.rec.Container, Truncated: j.rec.Truncated,
		CreatedAt: proto.At(j.rec.Created), UpdatedAt: proto.At(j.rec.Updated), Files: make([]proto.Artifact, 0,
			len(j.rec.Files)), Execs: []proto.JobExec{},
	}
	for _, f := range j.rec.Files {
		m.Files = append(m.Files, f.Artifact)
	}
	// Maps have no order, and equal manifests should be equal bytes.
	slices.SortFunc(m.Files, func(a, b proto.Artifact) int { return cmp.Compare(a.Path, b.Path) })
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucketExecs, j.key+"/", func(_ string, e proto.JobExec) { m.Execs = append(m.Execs, e) })
	})
	// The ledger writes in batches, so the newest execs may not be in it yet. They are appended here if the ledger
	// does not have them. A look at the last entries is enough, since newest has at most maxNewest.
	for _, e := range j.newest {
		if !slices.ContainsFunc(m.Execs[max(0, len(m.Execs)-2*maxNewest):], func(x proto.JobExec) bool {
			return x.ID == e.ID
		}) {
			m.Execs = append(m.Execs, e)
		}
	}
	m.Execs = m.Execs[max(0, len(m.Execs)-MaxExecs):]
	return m, err
}

// writeManifest writes a copy of the manifest for programs in the container, if the job's directory still exists. A
// directory without execs is perhaps no job's.
func (js *Jobs) writeManifest(ctx context.Context, s session.Files, as string, j *job) error {
	if j.absent {
		return nil
	}
	m, err := js.manifest(j)
	if err != nil || len(m.Execs) == 0 {
		return err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	err = js.write(ctx, s, as, proto.ManifestPath(j.rec.ID), append(data, '\n'))
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

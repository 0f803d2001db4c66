package artifacts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
)

// manifest builds the manifest from the books.
func (js *Jobs) manifest(j *job) (proto.Manifest, error) {
	m := proto.Manifest{
		JobID: j.rec.ID, WorkspaceID: j.rec.Workspace, ContainerID: j.rec.Container, Truncated: j.rec.Truncated,
		CreatedAt: proto.At(j.rec.Created), UpdatedAt: proto.At(j.rec.Updated), Files: make([]proto.Artifact, 0,
			len(j.rec.Files)), Execs: []proto.JobExec{},
	}
	for _, f := range j.rec.Files {
		m.Files = append(m.Files, f.Artifact)
	}
	// Maps have no order, and two manifests of the same files should be the same bytes.
	slices.SortFunc(m.Files, func(a, b proto.Artifact) int { return cmp.Compare(a.Path, b.Path) })
	err := js.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucketExecs, j.key+"/", func(_ string, e proto.JobExec) { m.Execs = append(m.Execs, e) })
	})
	// The ledger writes in batches: what it has not written yet is appended here, unless it has
	// been written since. Looking at the last few lines is enough for that, as newest has no more
	// than maxNewest.
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

// writeManifest puts manifest.json beside the files, if there is still a directory for it and the name is free. A
// directory that a command of root's made takes nothing from others, so it is written as that.
func (js *Jobs) writeManifest(ctx context.Context, s session.Files, as string, j *job) error {
	if j.absent || !j.ownsManifest {
		return nil
	}
	m, err := js.manifest(j)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	// WriteBook and not WriteFile: the directory is the code's, which may put links into it, and
	// WriteFile would report the write as a change by the API.
	fi, err := s.WriteManifest(ctx, proto.UserDefault, j.manifestPath(), bytes.NewReader(data))
	// Only where the exec itself ran as root: nobody else's act may write with root's rights into
	// a directory that was closed to them.
	if proto.CodeOf(err) == proto.PermissionDenied && as == proto.UserRoot {
		fi, err = s.WriteManifest(ctx, as, j.manifestPath(), bytes.NewReader(data))
	}
	if j.listed = err == nil; j.listed {
		j.manifestKey = markOf(fi)
		j.wrote(fi)
	}
	return err
}

// wrote brings the gist of this turn's look up to date with the manifest that was written after it.
func (j *job) wrote(fi proto.FileInfo) {
	if j.fingerprint == "" {
		return
	}
	if i, there := j.manifestIn(j.listing); there {
		j.listing[i] = fi
	} else {
		j.listing = slices.Insert(j.listing, i, fi)
	}
	j.fingerprint = proto.Gist(proto.JobDir(j.rec.ID), j.listing)
}

// manifestIn is where manifest.json is in a list, or belongs. Lists are sorted by path.
func (j *job) manifestIn(list []proto.FileInfo) (i int, there bool) {
	return slices.BinarySearchFunc(list, j.manifestPath(), func(fi proto.FileInfo, path string) int {
		return cmp.Compare(fi.Path, path)
	})
}

func (j *job) manifestPath() string { return proto.JobDir(j.rec.ID) + "/" + proto.ManifestName }

// A statKey tells one state of a file from another.
type statKey struct {
	changed time.Time
	size    int64
}

func markOf(fi proto.FileInfo) statKey { return statKey{fi.ChangedAt.Time, fi.SizeBytes} }

// mayList reports whether manifest.json is ours to write. It is a name that programs give to files of their own: such
// a one is kept, and listed like any other, and then the manifest is in the API alone. Ours is known by its mark,
// after a restart by its beginning.
func (js *Jobs) mayList(ctx context.Context, s session.Files, j *job, list []proto.FileInfo, truncated bool) bool {
	var fi proto.FileInfo
	i, there := j.manifestIn(list)
	switch {
	case there:
		fi = list[i]
	case truncated:
		var err error
		if fi, err = s.Stat(ctx, proto.UserRoot, j.manifestPath()); err != nil {
			return proto.CodeOf(err) == proto.NotFound
		}
	default:
		return true
	}
	if fi.Type != proto.TypeFile {
		return false
	}
	if is := markOf(fi); j.manifestKey != is {
		if !js.isManifest(ctx, s, j) {
			return false
		}
		j.manifestKey = is
	}
	return true
}

// manifestHead is how every manifest begins, of whatever job: a directory may have been copied with its own.
var manifestHead = regexp.MustCompile(`^\{\n  "job_id": "[A-Za-z0-9_-]+",\n  "workspace_id": "`)

// isManifest reports whether manifest.json is one that we wrote. One that cannot be read is not.
func (js *Jobs) isManifest(ctx context.Context, s session.Files, j *job) bool {
	r, _, err := s.ReadFileNoLinks(ctx, proto.UserRoot, j.manifestPath())
	if err != nil {
		return false
	}
	defer r.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(r, head) // it may have less, and is none then
	return manifestHead.Match(head[:n])
}

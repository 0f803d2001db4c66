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

// writeManifest writes manifest.json beside the files, if their directory still exists and the name is free. It
// writes as the default user. If the directory refuses that user and the exec ran as root, it writes as root.
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
	// WriteManifest and not WriteFile: code in the sandbox owns the directory and may put links into it, and
	// WriteFile would report the write as a change by the API.
	fi, err := s.WriteManifest(ctx, proto.UserDefault, j.manifestPath(), bytes.NewReader(data))
	// Only if the exec itself ran as root: an exec of another user must not cause a write with root's rights into a
	// directory that is closed to that user.
	if proto.CodeOf(err) == proto.PermissionDenied && as == proto.UserRoot {
		fi, err = s.WriteManifest(ctx, as, j.manifestPath(), bytes.NewReader(data))
	}
	if j.listed = err == nil; !j.listed {
		return err
	}
	j.manifestKey = markOf(fi)
	if j.fingerprint != "" { // add the manifest that was just written to the listing
		if i, there := j.manifestIn(j.listing); there {
			j.listing[i] = fi
		} else {
			j.listing = slices.Insert(j.listing, i, fi)
		}
		j.fingerprint = proto.Fingerprint(proto.JobDir(j.rec.ID), j.listing)
	}
	return nil
}

// manifestIn returns the index of manifest.json in a list, or where it belongs. Lists are sorted by path.
func (j *job) manifestIn(list []proto.FileInfo) (i int, there bool) {
	return slices.BinarySearchFunc(list, j.manifestPath(), func(fi proto.FileInfo, path string) int {
		return cmp.Compare(fi.Path, path)
	})
}

func (j *job) manifestPath() string { return proto.JobDir(j.rec.ID) + "/" + proto.ManifestName }

// A statKey distinguishes states of a file.
type statKey struct {
	changed time.Time
	size    int64
}

func markOf(fi proto.FileInfo) statKey { return statKey{fi.ChangedAt.Time, fi.SizeBytes} }

// mayList reports whether we may write manifest.json. Programs may use that name for their own files. Such a file
// stays and is listed like any other; the manifest is then available only through the API. We recognise our own file
// by its stat key, and after a restart by its first bytes.
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
		r, _, err := s.ReadFileNoLinks(ctx, proto.UserRoot, j.manifestPath())
		if err != nil {
			return false
		}
		defer r.Close()
		head := make([]byte, 256)
		n, _ := io.ReadFull(r, head) // a shorter file is no manifest
		if !manifestHead.Match(head[:n]) {
			return false
		}
		j.manifestKey = is
	}
	return true
}

// manifestHead matches the beginning of every manifest, of any job: a directory may have been copied with its
// manifest.
var manifestHead = regexp.MustCompile(`^\{\n  "job_id": "[A-Za-z0-9_-]+",\n  "workspace_id": "`)

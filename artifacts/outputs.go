package artifacts

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"berth/files"
	"berth/files/filename"
	"berth/proto"
	"berth/session"
	"berth/session/filework"
)

// What happens to outputs that are stored files already. Those of an interpreter were stored while it ran. Those of
// an exec that is recorded twice, because the daemon died the first time, were stored by the daemon before.
type stored int

const (
	nameStored  stored = iota // name them again
	leaveStored               // leave them out, since the client has them
	storeAgain                // store them again: the manifest may be behind and name an older content
)

// An output is a file, link or special file below $OUTPUT_DIR.
type output struct {
	rel  string // path below the job's directory, as the manifest has it
	name string // path below $OUTPUT_DIR; as such, or cleaned, the name of the stored file
	at   string // path in the container, which need not be UTF-8
	info proto.FileInfo
}

// outputs lists what is below dir, a path in the job's directory, by its path. more reports that there is more than
// MaxFiles.
func (js *Jobs) outputs(ctx context.Context, s session.Files, j *job, dir string) (list []output, more bool,
	err error) {
	// Most commands have no output, and for them the manifest spares the request. It lists no special files, and
	// nothing if it could not be brought up to date. It may end before the outputs.
	if j.fingerprint != "" && !j.rec.Truncated && !j.special && !j.hasOutput(dir) {
		return nil, false, nil
	}
	top := proto.JobDir(j.rec.ID) + "/" + dir
	w, err := filework.Walk(ctx, s, top, MaxFiles, "")
	if proto.CodeOf(err) == proto.NotFound && noDirectory(err, top) {
		return nil, false, nil // the code removed it
	}
	if noDirectory(err, top) {
		return nil, false, proto.Errorf(proto.InvalidArgument, "", dir, "it is not a directory any more, but a file "+
			"or a link; leave it in place and write files into it")
	}
	for _, fi := range w.Files {
		o := output{rel: j.rel(fi.Path), at: fi.Path, info: fi}
		if fi.RawPath != nil {
			o.at = string(fi.RawPath)
		}
		o.name = strings.TrimPrefix(o.rel, dir+"/")
		list = append(list, o)
	}
	return list, w.Truncated, err
}

// earlierOutputs is what earlier versions used for proto.OutputsName.
const earlierOutputs = "outputs"

// publishOutputs turns the files of $OUTPUT_DIR into stored files, also those in subdirectories and those that links
// lead to. It notes what is not stored.
func (js *Jobs) publishOutputs(ctx context.Context, s session.Files, j *job, e proto.Exec, known stored,
	made *session.Produced) {
	// Relative to the job's directory, like the paths in the manifest.
	dir, _ := strings.CutPrefix(proto.OutputDir(e.JobID, e.ID), proto.JobDir(e.JobID)+"/")
	list, more, err := js.outputs(ctx, s, j, dir)
	if len(list) > 0 {
		js.ignore(ctx, s, e.User, j, proto.JobDir(e.JobID)+"/"+proto.OutputsName)
	} else if err == nil { // of an exec that an earlier version started
		list, more, err = js.outputs(ctx, s, j, earlierOutputs+"/"+e.ID)
	}
	if err != nil {
		made.Notes = append(made.Notes, "$OUTPUT_DIR could not be read: "+proto.AsError(err).Message)
	}
	// If there are too many, results at the top are more important than the content of a directory.
	slices.SortStableFunc(list, func(a, b output) int {
		return cmp.Compare(strings.Count(a.name, "/"), strings.Count(b.name, "/"))
	})
	unstored := notes{told: map[string]time.Time{}}
	if known == leaveStored {
		if j.told == nil || len(j.told) > maxUnlisted {
			j.told = unstored.told
		}
		unstored.told = j.told
	}
	type named struct{ name, id string }
	var ids []named
	room, over := MaxOutputs, 0
	for _, o := range list {
		was := j.entryOf(o)
		switch {
		case o.info.Type == proto.TypeOther:
			unstored.add(o, "%.200q was not stored: it is a FIFO, a socket or a device; write a regular file", o.name)
			continue
		case known == leaveStored && was.FileID != "" && o.info.Type == proto.TypeFile:
			continue
		// A loop that writes a file for each row must not fill the owner's storage.
		case room == 0:
			over++
			continue
		}
		// As the exec's own user: it must not get files published that it could not read.
		id, fresh, err := js.publishOutput(ctx, s, e.User, j, o, was, known)
		switch {
		case err != nil:
			room--
			unstored.add(o, "%s", o.explain(err, e.User))
		case fresh || known != leaveStored:
			room--
			ids = append(ids, named{o.name, id})
		}
	}
	slices.SortFunc(ids, func(a, b named) int { return strings.Compare(a.name, b.name) })
	for _, n := range ids {
		made.FileIDs = append(made.FileIDs, n.id)
	}
	if over > 0 || more {
		least := ""
		if more {
			least = "at least "
		}
		made.Notes = append(made.Notes, fmt.Sprintf("$OUTPUT_DIR holds %s%d more files, which are not stored and stay "+
			"in the job's directory: one command stores at most %d, those nearest to the top first; pack many files "+
			"into an archive", least, over, MaxOutputs))
	}
	made.Notes = append(made.Notes, unstored.texts()...)
}

// publishOutput stores an output as a user, unless it is stored already and unchanged. fresh reports that it did.
func (js *Jobs) publishOutput(ctx context.Context, s session.Files, as string, j *job, o output, was entry,
	known stored) (id string, fresh bool, err error) {
	keep := was.FileID != "" && known != storeAgain
	if keep && o.info.Type == proto.TypeFile {
		return was.FileID, false, nil
	}
	r, fi, err := filework.ReadForJob(ctx, s, as, o.at)
	if err != nil {
		return "", false, err
	}
	defer r.Close()
	// The change time of a link says nothing about the file that it leads to.
	if keep && was.Followed.Equal(fi.ChangedAt.Time) {
		return was.FileID, false, nil
	}
	f, err := js.store(ctx, s, j, o, filename.FromTree(o.name), r, fi)
	return f.ID, err == nil, err
}

// publish stores one file of the job, as a user, under a name without directories.
func (js *Jobs) publish(ctx context.Context, s session.Files, as string, j *job, rel string) (proto.StoredFile,
	error) {
	o := output{rel: rel, at: proto.JobDir(j.rec.ID) + "/" + rel}
	o.info.Type = j.files[rel].Type
	r, fi, err := filework.ReadForJob(ctx, s, as, o.at)
	if err != nil {
		return proto.StoredFile{}, err
	}
	defer r.Close()
	return js.store(ctx, s, j, o, filename.FromPath(rel), r, fi)
}

// store stores the content of a file of the job, and notes its ID. fi is of the file that was opened.
func (js *Jobs) store(ctx context.Context, s session.Files, j *job, o output, name string, r io.Reader,
	fi proto.FileInfo) (proto.StoredFile, error) {
	f, err := js.cfg.Files.Put(ctx, files.Upload{
		// The scope ties the stored file to this container; lists can select by it.
		Owner: s.Owner(), Filename: name, Tree: true, Downloadable: true, Scope: s.ID(), SizeBytes: fi.SizeBytes,
	}, r)
	if err != nil {
		return f, err
	}
	en, listed := j.files[o.rel]
	if !listed {
		en = entry{Changed: o.info.ChangedAt.Time}
		en.SizeBytes = o.info.SizeBytes
	}
	en.FileID = f.ID
	if o.info.Type == proto.TypeSymlink {
		en.Followed = fi.ChangedAt.Time
	} else if listed {
		// It may have changed since it was hashed; the entry describes what was stored.
		en.MediaType, en.SHA256, en.SizeBytes = f.MIMEType, f.SHA256, f.SizeBytes
	}
	if !listed {
		j.noteUnlisted(o.rel, en)
		return f, nil
	}
	j.set(o.rel, en)
	j.listed = false
	js.save(j)
	return f, nil
}

// maxUnlisted bounds the outputs that a job remembers beside its manifest, stored or not.
const maxUnlisted = 10 * MaxOutputs

// noteUnlisted remembers a stored output that the manifest has no room for, so that the next cell does not store it
// again.
func (j *job) noteUnlisted(rel string, en entry) {
	if j.unlisted == nil || len(j.unlisted) >= maxUnlisted {
		j.unlisted = map[string]entry{}
	}
	j.unlisted[rel] = en
}

// entryOf returns the entry of an output, or the zero entry if it has none or has changed.
func (j *job) entryOf(o output) entry {
	if en, ok := j.files[o.rel]; ok {
		return en
	}
	en := j.unlisted[o.rel]
	if !en.Changed.Equal(o.info.ChangedAt.Time) || en.SizeBytes != o.info.SizeBytes {
		return entry{}
	}
	return en
}

// explain returns the note for an output that user could not store, and says what to do.
func (o output) explain(err error, user string) string {
	why, ofFile := strings.CutPrefix(proto.AsError(err).Message, o.info.Path+": ")
	link := ofFile && o.info.Type == proto.TypeSymlink
	if ofFile && why == "permission denied" {
		why = fmt.Sprintf("cannot be read by user %q", user)
		if !link {
			why = "it " + why + "; change its mode"
		}
	}
	if !link {
		return fmt.Sprintf("%.200q was not stored: %s", o.name, why)
	}
	return fmt.Sprintf("%.200q was not stored: it is a link, and its target %.200q %s; put the file itself into "+
		"$OUTPUT_DIR", o.name, o.info.Target, why)
}

// maxNotes bounds the notes about what was not stored.
const maxNotes = 10

// notes collects notes about outputs that were not stored.
type notes struct {
	told map[string]time.Time // outputs with a note, by their path, and when they last changed then
	list []string
	more int
}

// add adds a note about o, unless it has one since it last changed: an earlier cell has told that.
func (n *notes) add(o output, format string, args ...any) {
	was, told := n.told[o.rel]
	n.told[o.rel] = o.info.ChangedAt.Time
	switch {
	case told && was.Equal(o.info.ChangedAt.Time):
	case len(n.list) == maxNotes:
		n.more++
	default:
		n.list = append(n.list, "in $OUTPUT_DIR, "+fmt.Sprintf(format, args...))
	}
}

// texts returns the notes, and how many there are beyond maxNotes.
func (n *notes) texts() []string {
	if n.more == 0 {
		return n.list
	}
	return append(n.list, fmt.Sprintf("and %d more in $OUTPUT_DIR were not stored", n.more))
}

package skills

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"berth/proto"
	"berth/state/ledger"
)

// A Draft is a version of a skill on its way in. It becomes one with Create or Release; until then it is a temporary
// file.
type Draft struct {
	store *Store
	owner string
	by    string // API key
	file  *os.File
	zip   *zip.Writer
	dir   string          // that all files are in, as they are sent
	seen  map[string]bool // paths of files, and of the directories that they need: true for files
	files int
	bytes int64  // of the files
	front []byte // the beginning of SKILL.md; nil: it has not come
}

// NewDraft begins an upload. The caller closes it.
func (s *Store) NewDraft(ctx context.Context, owner string) (*Draft, error) {
	select {
	case s.drafts <- struct{}{}:
	default:
		return nil, proto.Errorf(proto.TooMany, "", "files", "%d skills are being uploaded, which is the limit; try "+
			"again when one is done.", maxDrafts)
	}
	f, err := os.CreateTemp(s.cfg.Dir, "draft-*")
	if err != nil {
		<-s.drafts
		return nil, diskError(err)
	}
	return &Draft{store: s, owner: owner, by: proto.CallerOf(ctx).KeyID, file: f, zip: zip.NewWriter(f),
		seen: map[string]bool{}}, nil
}

// Close removes what did not become a version. It may be called twice.
func (d *Draft) Close() {
	if d.file != nil {
		_ = d.file.Close()
		_ = os.Remove(d.file.Name()) // what cannot be removed goes at the next Open
		d.file = nil
		<-d.store.drafts
	}
}

// Add takes in a file, whose path begins with the skill's directory. A program is one that says so, or begins with
// "#!".
func (d *Draft) Add(name string, program bool, r io.Reader) error {
	rest, err := d.admit(name)
	if err != nil {
		return err
	}
	in := bufio.NewReader(r)
	if head, _ := in.Peek(2); string(head) == "#!" {
		program = true
	}
	h := &zip.FileHeader{Name: rest, Method: zip.Deflate, Modified: d.store.cfg.Now()}
	h.SetMode(modeOf(program))
	w, err := d.zip.CreateHeader(h)
	if err != nil {
		return diskError(err)
	}
	if rest == manifestName {
		d.front = []byte{}
		w = io.MultiWriter(w, frontOf{d})
	}
	return d.copy(name, w, in)
}

func modeOf(program bool) fs.FileMode {
	if program {
		return 0o755
	}
	return 0o644
}

// frontOf keeps the beginning of what is written to it.
type frontOf struct{ *Draft }

func (f frontOf) Write(p []byte) (int, error) {
	f.front = append(f.front, p[:min(len(p), maxManifest-len(f.front))]...)
	return len(p), nil
}

// admit checks a path before any of its file's bytes.
func (d *Draft) admit(name string) (rest string, err error) {
	dir, rest, err := splitPath(name)
	if err != nil {
		return "", err
	}
	if d.dir == "" {
		d.dir = dir
	}
	if dir != d.dir {
		return "", proto.Errorf(proto.InvalidArgument, "", shown(name), "The file %.200q is not in %.80q, where "+
			"others are; all files are in one directory.", name, d.dir)
	}
	if d.files++; d.files > d.store.cfg.MaxFiles {
		return "", proto.Errorf(proto.TooLarge, "", shown(name), "A skill may have %d files; %.200q is one too many.",
			d.store.cfg.MaxFiles, name)
	}
	return rest, d.claim(name, rest)
}

// claim sees that no path comes twice, nor one as a file and as a directory.
func (d *Draft) claim(name, rest string) error {
	if _, taken := d.seen[rest]; taken {
		return proto.Errorf(proto.InvalidArgument, "", shown(name),
			"The file %.200q comes twice, or is a directory as well.", name)
	}
	d.seen[rest] = true
	for up := path.Dir(rest); up != "."; up = path.Dir(up) {
		if d.seen[up] {
			return proto.Errorf(proto.InvalidArgument, "", shown(name), "The file %.200q is in what is a file itself.",
				name)
		}
		d.seen[up] = false
	}
	return nil
}

// copy takes in a file's bytes, up to what all together may have.
func (d *Draft) copy(name string, w io.Writer, r io.Reader) error {
	most := d.store.cfg.MaxBytes
	n, err := io.Copy(w, io.LimitReader(r, most-d.bytes+1))
	d.bytes += n
	if d.bytes > most {
		return proto.Errorf(proto.TooLarge, "", shown(name), "The files of a skill may have %d bytes together; with "+
			"%.200q they have more.", most, name)
	}
	return diskError(err)
}

// AddZip takes in all files of a zip archive, which is spooled first: where its parts are stands at its end.
func (d *Draft) AddZip(name string, r io.Reader) error {
	spool, err := os.CreateTemp(d.store.cfg.Dir, "draft-*")
	if err != nil {
		return diskError(err)
	}
	defer os.Remove(spool.Name())
	defer spool.Close()
	most, entries := d.store.cfg.MaxBytes, &entryCount{}
	size, err := io.Copy(io.MultiWriter(spool, entries), io.LimitReader(r, most+1))
	if err != nil {
		return diskError(err)
	}
	if entries.n > entriesPerFile*d.store.cfg.MaxFiles {
		return proto.Errorf(proto.TooLarge, "", shown(name), "The archive %.200q lists more than %d entries, and a "+
			"skill may have %d files.", name, entriesPerFile*d.store.cfg.MaxFiles, d.store.cfg.MaxFiles)
	}
	if size > most {
		return proto.Errorf(proto.TooLarge, "", shown(name), "The archive %.200q is larger than the %d bytes that a "+
			"skill may have.", name, most)
	}
	z, err := zip.NewReader(spool, size)
	if err != nil {
		return proto.Errorf(proto.InvalidArgument, "", shown(name), "%.200q is not a zip archive that can be read.",
			name)
	}
	for _, f := range z.File {
		if err := d.addZipped(f); err != nil {
			return err
		}
	}
	return nil
}

// entriesPerFile is how many entries an archive may list for each file that a skill may have: directories are entries
// too.
const entriesPerFile = 8

// An entryCount counts the entries that an archive can have by the mark that each begins with in its list. The list
// takes a multiple of its size in memory when it is read, so it is not read if it is too long. What is in the files
// can have the mark as well, which does not matter.
type entryCount struct {
	n    int
	last []byte // bytes that a mark may begin with
}

var entryMark = []byte("PK\x01\x02")

// Write is io.Writer's.
func (c *entryCount) Write(p []byte) (int, error) {
	edge := append(c.last, p[:min(len(p), len(entryMark)-1)]...)
	c.n += bytes.Count(edge, entryMark) + bytes.Count(p, entryMark)
	if len(p) >= len(entryMark)-1 {
		edge = p
	}
	c.last = bytes.Clone(edge[max(0, len(edge)-len(entryMark)+1):])
	return len(p), nil
}

// addZipped takes in one file of an archive. Directories come with what is in them; what a Mac puts into archives for
// itself is left out.
func (d *Draft) addZipped(f *zip.File) error {
	if strings.HasPrefix(f.Name, "__MACOSX/") || path.Base(f.Name) == ".DS_Store" || f.Mode().IsDir() {
		return nil
	}
	if !f.Mode().IsRegular() {
		return proto.Errorf(proto.InvalidArgument, "", shown(f.Name), "The file %.200q is a link or a special file; "+
			"a skill has ordinary files alone.", f.Name)
	}
	in, err := f.Open()
	if err == nil {
		defer in.Close()
		err = d.Add(f.Name, f.Mode()&0o111 != 0, in)
	}
	if errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrFormat) || errors.Is(err, zip.ErrAlgorithm) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return proto.Errorf(proto.InvalidArgument, "", shown(f.Name), "The file %.200q of the archive is damaged, "+
			"or packed in a way that is not known.", f.Name)
	}
	return err
}

// Create makes the draft the first version of a new skill. Without a display name it is shown by its name.
func (d *Draft) Create(displayName string) (Skill, error) {
	if err := checkDisplayName(displayName); err != nil {
		return Skill{}, err
	}
	m, err := d.finish()
	if err != nil {
		return Skill{}, err
	}
	if displayName == "" {
		displayName = m.Name
	}
	r := skillRecord{ID: proto.NewID(SkillPrefix), DisplayName: displayName, Name: m.Name, Created: d.store.now(), By: d.by}
	v, err := d.publish(m, func(tx *ledger.Tx, v versionRecord) error {
		if err := d.store.afford(tx, d.owner, true, v.Bytes); err != nil {
			return err
		}
		if err := tx.Put(bucketSkills, ownKey(d.owner, r.ID), r); err != nil {
			return err
		}
		return tx.Put(bucketVersions, ownKey(r.ID, v.ID), v)
	})
	return r.info(v), err
}

// Release makes the draft the newest version of a skill that there is, whose name it must have.
func (d *Draft) Release(ctx context.Context, id string) (Version, error) {
	if err := d.store.mayChange(ctx, d.owner, id); err != nil {
		return Version{}, err
	}
	m, err := d.finish()
	if err != nil {
		return Version{}, err
	}
	var r skillRecord
	v, err := d.publish(m, func(tx *ledger.Tx, v versionRecord) (err error) {
		if r, err = find(tx, d.owner, id); err != nil {
			return err
		}
		if r.Name != m.Name {
			return proto.Errorf(proto.InvalidArgument, "", d.dir+"/"+manifestName, "The name of skill `%s` is %q, "+
				"and stays; that in %s/%s is %q.", id, r.Name, d.dir, manifestName, m.Name)
		}
		all, err := versions(tx, id)
		if err != nil {
			return err
		}
		if len(all) >= maxVersions {
			return proto.Errorf(proto.QuotaExceeded, "", id, "Skill `%s` has %d versions, which is the limit; "+
				"delete one.", id, len(all))
		}
		if err := d.store.afford(tx, d.owner, false, v.Bytes); err != nil {
			return err
		}
		return tx.Put(bucketVersions, ownKey(id, v.ID), v)
	})
	return r.version(v), err
}

// finish ends the archive and reads what the skill says of itself.
func (d *Draft) finish() (manifest, error) {
	switch {
	case d.files == 0:
		return manifest{}, proto.Errorf(proto.InvalidArgument, "", "files", "There are no files; send each as a "+
			"part named files[], with its path as the filename, or one zip archive.")
	case d.front == nil:
		return manifest{}, proto.Errorf(proto.InvalidArgument, "", d.dir+"/"+manifestName,
			"There is no %s/%s; a skill has it at the top of its directory.", d.dir, manifestName)
	}
	m, err := parseManifest(d.dir, d.front)
	if err != nil {
		return m, err
	}
	if err := d.zip.Close(); err != nil {
		return m, diskError(err)
	}
	return m, diskError(d.file.Sync())
}

// publish puts the archive in its place and then the records that write makes. If those fail, nothing stays.
func (d *Draft) publish(m manifest, write func(*ledger.Tx, versionRecord) error) (versionRecord, error) {
	fi, err := d.file.Stat()
	if err != nil {
		return versionRecord{}, diskError(err)
	}
	s := d.store
	v := versionRecord{ID: proto.NewID(VersionPrefix), Number: s.number(), Description: m.Description, Bytes: fi.Size(),
		Created: s.now(), By: d.by}
	if err := os.Rename(d.file.Name(), s.archive(v.ID)); err != nil {
		return v, diskError(err)
	}
	_ = d.file.Close()
	d.file = nil
	<-s.drafts
	err = ledger.SyncPath(s.cfg.Dir)
	if err == nil {
		err = s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return write(tx, v) })
	}
	if err != nil {
		s.discard([]versionRecord{v})
	}
	return v, err
}

// afford fails where an owner has as much as one may have.
func (s *Store) afford(tx *ledger.Tx, owner string, another bool, bytes int64) error {
	var ids []string
	if err := ledger.Each(tx, bucketSkills, owner+"/", func(_ string, r skillRecord) {
		ids = append(ids, r.ID)
	}); err != nil {
		return err
	}
	if another && len(ids) >= maxSkills {
		return proto.Errorf(proto.QuotaExceeded, "", "skills", "There are %d skills, which is the limit; delete one.",
			len(ids))
	}
	for _, id := range ids {
		all, err := versions(tx, id)
		if err != nil {
			return err
		}
		for _, v := range all {
			bytes += v.Bytes
		}
	}
	if bytes > s.cfg.Quota {
		return proto.Errorf(proto.QuotaExceeded, "", "files", "Skills may take %d bytes in all, and this would make "+
			"it %d; delete versions that are not needed.", s.cfg.Quota, bytes)
	}
	return nil
}

// diskError tells a full disk, which somebody can mend, from a broken one. What is not the disk's passes.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return proto.Errorf(proto.Unavailable, "", "", "The daemon's disk is full; its operator has to make room.")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("storing a skill: %w", err)
	}
	return err
}

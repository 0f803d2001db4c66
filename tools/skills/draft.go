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
	"berth/state/durable"
	"berth/state/ledger"
	"berth/tools/skills/content"
)

// A Draft is an unfinished upload of a skill's version. Create or Release turns it into a version. Until then it is a
// temporary file.
type Draft struct {
	store *Store
	owner string
	by    string // API key
	file  *os.File
	zip   *zip.Writer
	dir   string          // directory of all files, as the client named it
	seen  map[string]bool // paths of files (true) and of their parent directories (false)
	files int
	bytes int64         // total size of the files
	front content.Front // beginning of SKILL.md; nil: not received yet
}

// An Upload is a Draft as an edge sees it. Stores on other machines have their own.
type Upload interface {
	Add(name string, program bool, r io.Reader) error
	AddZip(name string, r io.Reader) error
	Create(displayName string) (Skill, error)
	Release(ctx context.Context, id string) (Version, error)
	Close()
}

// NewDraft begins an upload. The caller must close it.
func (s *Store) NewDraft(ctx context.Context, owner string) (Upload, error) {
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

// Close removes a draft that did not become a version. It may be called twice.
func (d *Draft) Close() {
	if d.file != nil {
		_ = d.file.Close()
		_ = os.Remove(d.file.Name()) // if this fails, the next Open removes it
		d.file = nil
		<-d.store.drafts
	}
}

// Add adds a file. Its path begins with the skill's directory. The file is executable if program is true, or if its
// content begins with "#!".
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
	h.SetMode(content.Mode(program))
	w, err := d.zip.CreateHeader(h)
	if err != nil {
		return diskError(err)
	}
	if rest == content.File {
		d.front = content.Front{}
		w = io.MultiWriter(w, &d.front)
	}
	return d.copy(name, w, in)
}

// admit checks the path of a file before the file is read.
func (d *Draft) admit(name string) (rest string, err error) {
	dir, rest, err := content.SplitPath(name)
	if err != nil {
		return "", err
	}
	if d.dir == "" {
		d.dir = dir
	}
	if dir != d.dir {
		return "", content.Invalid(name, "The file %.200q is not in the directory %.80q of the other files; all files "+
			"must be in one directory.", name, d.dir)
	}
	if d.files++; d.files > d.store.cfg.MaxFiles {
		return "", proto.Errorf(proto.TooLarge, "", shown(name), "A skill may have at most %d files; %.200q is one "+
			"too many.", d.store.cfg.MaxFiles, name)
	}
	return rest, d.reservePath(name, rest)
}

// reservePath refuses a path that was used before, and a path that is both a file and a directory.
func (d *Draft) reservePath(name, rest string) error {
	if _, taken := d.seen[rest]; taken {
		return content.Invalid(name, "The file %.200q is sent twice, or is also a directory.", name)
	}
	d.seen[rest] = true
	for up := path.Dir(rest); up != "."; up = path.Dir(up) {
		if d.seen[up] {
			return content.Invalid(name, "The file %.200q is below another file.", name)
		}
		d.seen[up] = false
	}
	return nil
}

// copy copies the content of a file. It fails if the files together exceed their limit.
func (d *Draft) copy(name string, w io.Writer, r io.Reader) error {
	most := d.store.cfg.MaxBytes
	n, err := io.Copy(w, io.LimitReader(r, most-d.bytes+1))
	d.bytes += n
	if d.bytes > most {
		return proto.Errorf(proto.TooLarge, "", shown(name), "The files of a skill may have at most %d bytes "+
			"together; with %.200q they have more.", most, name)
	}
	return diskError(err)
}

// AddZip adds all files of a zip archive. It first writes the archive to a temporary file, since the directory of a
// zip archive is at its end.
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
		return content.Invalid(name, "%.200q is not a readable zip archive.", name)
	}
	for _, f := range z.File {
		if err := d.addZipped(f); err != nil {
			return err
		}
	}
	return nil
}

// entriesPerFile is how many archive entries are allowed per allowed file. There are more entries than files because
// directories are entries too.
const entriesPerFile = 8

// An entryCount estimates the number of entries in a zip archive: it counts the signature that begins each entry of
// the central directory. Reading that directory takes a multiple of its size in memory, so AddZip refuses an archive
// with too many entries before it reads them. File content can contain the signature as well, which only raises the
// count.
type entryCount struct {
	n    int
	last []byte // last bytes, which a signature may begin with
}

var entryMark = []byte("PK\x01\x02")

// Write counts the signatures in p.
func (c *entryCount) Write(p []byte) (int, error) {
	edge := append(c.last, p[:min(len(p), len(entryMark)-1)]...)
	c.n += bytes.Count(edge, entryMark) + bytes.Count(p, entryMark)
	if len(p) >= len(entryMark)-1 {
		edge = p
	}
	c.last = bytes.Clone(edge[max(0, len(edge)-len(entryMark)+1):])
	return len(p), nil
}

// addZipped adds one file of an archive. It skips directories, which their files imply, and metadata that macOS adds
// to archives.
func (d *Draft) addZipped(f *zip.File) error {
	if strings.HasPrefix(f.Name, "__MACOSX/") || path.Base(f.Name) == ".DS_Store" || f.Mode().IsDir() {
		return nil
	}
	if !f.Mode().IsRegular() {
		return content.Invalid(f.Name, "The file %.200q is a link or a special file; a skill may have ordinary files "+
			"only.", f.Name)
	}
	in, err := f.Open()
	if err == nil {
		defer in.Close()
		err = d.Add(f.Name, f.Mode()&0o111 != 0, in)
	}
	if errors.Is(err, zip.ErrChecksum) || errors.Is(err, zip.ErrFormat) || errors.Is(err, zip.ErrAlgorithm) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return content.Invalid(f.Name, "The file %.200q of the archive is damaged, or its compression is unknown.",
			f.Name)
	}
	return err
}

// Create makes the draft the first version of a new skill. The default display name is the skill's name.
func (d *Draft) Create(displayName string) (Skill, error) {
	if err := content.CheckDisplayName(displayName); err != nil {
		return Skill{}, err
	}
	m, err := d.finish()
	if err != nil {
		return Skill{}, err
	}
	if displayName == "" {
		displayName = m.Name
	}
	r := skillRecord{ID: proto.NewID(SkillPrefix), DisplayName: displayName, Name: m.Name, Created: d.store.now(),
		By: d.by}
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

// Release makes the draft the newest version of an existing skill. The draft must have the same name as the skill.
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
		var all []versionRecord
		if r, all, err = load(tx, d.owner, id); err != nil {
			return err
		}
		if r.Name != m.Name {
			return content.Invalid(d.dir+"/"+content.File, "Skill `%s` keeps its name, %q; %s/%s has the name %q.", id,
				r.Name, d.dir, content.File, m.Name)
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

// finish completes the archive and parses SKILL.md.
func (d *Draft) finish() (content.Manifest, error) {
	switch {
	case d.files == 0:
		return content.Manifest{}, content.Invalid("files", "There are no files; send each as a part named files[], "+
			"with its path as the filename, or send one zip archive.")
	case d.front == nil:
		return content.Manifest{}, content.Invalid(d.dir+"/"+content.File,
			"There is no %s/%s; a skill must have it at "+
				"the top of its directory.", d.dir, content.File)
	}
	m, err := content.Parse(d.dir, d.front)
	if err != nil {
		return m, err
	}
	if err := d.zip.Close(); err != nil {
		return m, diskError(err)
	}
	return m, diskError(d.file.Sync())
}

// publish moves the archive to its place and then writes the records with write. If that fails, publish removes the
// archive.
func (d *Draft) publish(m content.Manifest, write func(*ledger.Tx, versionRecord) error) (versionRecord, error) {
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
	err = durable.Sync(s.cfg.Dir)
	if err == nil {
		err = s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return write(tx, v) })
	}
	if err != nil {
		s.discard([]versionRecord{v})
	}
	return v, err
}

// afford returns an error if the upload would exceed the owner's limits. another means that it is a new skill.
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

// diskError converts an error of the file system. A full disk gets an error of its own, since the operator can fix
// it. Other errors stay unchanged.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return proto.Errorf(proto.Unavailable, "", "", "The daemon's disk is full; its operator must free space.")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("storing a skill: %w", err)
	}
	return err
}

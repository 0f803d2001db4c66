// Package provided reads the skills that the operator of the daemon provides to all owners: a directory with one
// skill in each subdirectory.
//
// Each request reads the directory, so a change takes effect without a restart. The version of a provided skill is a
// digest of its content. Package skills is the caller.
package provided

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"berth/proto"
	"berth/tools/skills/content"
)

// Config configures a Dir.
type Config struct {
	Path     string
	MaxBytes int64 // of all files of one skill
	MaxFiles int   // of one skill
	MaxList  int   // skills that List returns at most
	Log      *slog.Logger
}

// A Dir is the directory of provided skills. It caches each skill until its file names, sizes or modification times
// change.
type Dir struct {
	cfg Config

	mu    sync.Mutex // guards known; held while a skill is read, so that it is read once
	known map[string]cached
}

// A Skill is the current version of a provided skill.
type Skill struct {
	Version     string // digest of the content
	Name        string
	Description string
	Modified    time.Time
}

// A cached is the state of one subdirectory when it was read last.
type cached struct {
	stat  [sha256.Size]byte // digest of names, sizes and modification times
	skill Skill
	err   error // why it is not a valid skill
}

// Open returns the directory. It fails if the directory does not exist.
func Open(cfg Config) (*Dir, error) {
	fi, err := os.Stat(cfg.Path)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is not a directory", cfg.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the directory of provided skills: %w", err)
	}
	return &Dir{cfg: cfg, known: map[string]cached{}}, nil
}

// List returns the provided skills by name. It skips directories that are not valid skills.
func (d *Dir) List(ctx context.Context) (list []Skill) {
	entries, err := os.ReadDir(d.cfg.Path)
	if err != nil {
		d.cfg.Log.Error("reading the directory of provided skills", "error", err)
		return nil
	}
	for _, e := range entries[:min(len(entries), d.cfg.MaxList)] {
		if skill, err := d.Find(ctx, e.Name()); err == nil {
			list = append(list, skill)
		}
	}
	return list
}

// Find returns the current version of the skill in one subdirectory.
func (d *Dir) Find(ctx context.Context, name string) (Skill, error) {
	if !content.ValidName(name) {
		return Skill{}, content.NoSkill(name)
	}
	root, err := d.open(name)
	if err != nil {
		return Skill{}, err
	}
	defer root.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.walk(ctx, name, root)
	old, known := d.known[name]
	if err == nil && known && old.stat == t.stat {
		return old.skill, old.err
	}
	var skill Skill
	if err == nil {
		skill, err = read(ctx, name, root, t)
	}
	if ctx.Err() != nil {
		return Skill{}, ctx.Err()
	}
	if err != nil && (!known || fmt.Sprint(old.err) != err.Error()) {
		d.cfg.Log.Warn("a provided skill cannot be used", "skill", name, "error", err)
	}
	d.known[name] = cached{t.stat, skill, err}
	return skill, err
}

// open opens a skill's directory. It refuses a symbolic link, which could lead outside.
func (d *Dir) open(name string) (*os.Root, error) {
	all, err := os.OpenRoot(d.cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of provided skills: %w", err)
	}
	defer all.Close()
	fi, err := all.Lstat(name)
	if err != nil || !fi.IsDir() {
		return nil, content.NoSkill(name)
	}
	root, err := all.OpenRoot(name)
	if err != nil {
		return nil, content.NoSkill(name)
	}
	if _, err := root.Lstat(content.File); err != nil {
		root.Close()
		return nil, content.NoSkill(name)
	}
	return root, nil
}

// A tree is the files of one directory.
type tree struct {
	stat     [sha256.Size]byte // digest of names, sizes and modification times
	files    []treeFile
	modified time.Time // the latest
}

type treeFile struct {
	path string
	mode fs.FileMode
	size int64
}

// walk lists the files of a directory. It refuses files that a skill may not have.
func (d *Dir) walk(ctx context.Context, name string, root *os.Root) (t tree, err error) {
	h, bytes := sha256.New(), int64(0)
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return unreadable(name, path, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, _, err := content.SplitPath(name + "/" + path); err != nil {
			return err
		}
		if !e.Type().IsRegular() {
			return content.Invalid(path, "The file %.200q of the provided skill %q is a link or a special file; a "+
				"skill may have ordinary files only.", path, name)
		}
		fi, err := e.Info()
		if err != nil {
			return unreadable(name, path, err)
		}
		f := treeFile{path, content.Mode(fi.Mode()&0o111 != 0), fi.Size()}
		t.files, bytes = append(t.files, f), bytes+f.size
		if fi.ModTime().After(t.modified) {
			t.modified = fi.ModTime()
		}
		fmt.Fprintf(h, "%q %o %d %d\n", path, f.mode, f.size, fi.ModTime().UnixNano())
		switch {
		case len(t.files) > d.cfg.MaxFiles:
			return proto.Errorf(proto.TooLarge, "", name, "The provided skill %q has more than the %d files that a "+
				"skill may have.", name, d.cfg.MaxFiles)
		case bytes > d.cfg.MaxBytes:
			return proto.Errorf(proto.TooLarge, "", name, "The provided skill %q has more than the %d bytes that a "+
				"skill may have.", name, d.cfg.MaxBytes)
		}
		return nil
	})
	h.Sum(t.stat[:0])
	return t, err
}

// unreadable returns an error that does not contain the path on the host.
func unreadable(name, path string, err error) error {
	if err == nil {
		return nil
	}
	return proto.Errorf(proto.Unavailable, "", content.Shown(path), "The file %.200q of the provided skill %q "+
		"cannot be read.",
		path, name)
}

// digestLength is the number of hex digits in a version. That is enough to distinguish the versions of one skill.
const digestLength = 16

// read reads the files of a skill.
func read(ctx context.Context, name string, root *os.Root, t tree) (Skill, error) {
	h, front := sha256.New(), content.Front{}
	for _, f := range t.files {
		fmt.Fprintf(h, "%q %o %d\n", f.path, f.mode, f.size)
		w := io.Writer(h)
		if f.path == content.File {
			w = io.MultiWriter(h, &front)
		}
		if err := copyFile(ctx, name, root, f, w); err != nil {
			return Skill{}, err
		}
	}
	m, err := content.Parse(name, front)
	if err == nil && m.Name != name {
		err = content.Invalid(name, "The provided skill in directory %q has the name %q; give the directory the same "+
			"name.", name, m.Name)
	}
	return Skill{Version: hex.EncodeToString(h.Sum(nil))[:digestLength], Name: name, Description: m.Description,
		Modified: t.modified.UTC().Truncate(time.Microsecond)}, err
}

// copyFile writes one file. It fails if the file is now shorter than when it was listed, and writes no more than that
// size.
func copyFile(ctx context.Context, name string, root *os.Root, f treeFile, w io.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, err := root.Open(f.path)
	if err != nil {
		return unreadable(name, f.path, err)
	}
	defer in.Close()
	_, err = io.CopyN(w, in, f.size)
	if err == io.EOF {
		return proto.Errorf(proto.Unavailable, "", content.Shown(f.path),
			"The provided skill %q is being changed; send the "+
				"request again.", name)
	}
	return err
}

// Tar writes the current content of a skill as a tar archive.
func (d *Dir) Tar(ctx context.Context, name string, to io.Writer) error {
	root, err := d.open(name)
	if err != nil {
		return err
	}
	defer root.Close()
	t, err := d.walk(ctx, name, root)
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	for _, f := range t.files {
		if err := w.WriteHeader(content.TarHeader(f.path, f.mode, f.size, t.modified)); err != nil {
			return err
		}
		if err := copyFile(ctx, name, root, f, w); err != nil {
			return err
		}
	}
	return w.Close()
}

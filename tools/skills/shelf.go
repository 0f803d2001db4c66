package skills

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
)

// A shelf is the directory of provided skills. It caches each skill until its file names, sizes or modification times
// change.
type shelf struct {
	cfg Config
	log *slog.Logger

	mu    sync.Mutex // guards known; held while a skill is read, so that it is read once
	known map[string]*onShelf
}

// An onShelf is the cached state of one directory.
type onShelf struct {
	look [sha256.Size]byte // digest of names, sizes and modification times
	v    Version
	err  error // why it is not a valid skill
}

// skill returns the Skill of a provided skill's version. A provided skill has only one version.
func (v Version) skill() Skill {
	return Skill{ID: v.SkillID, DisplayName: v.Name, Source: Provided, Latest: v, Created: v.Created,
		Updated: v.Created}
}

func newShelf(cfg Config) *shelf {
	return &shelf{cfg: cfg, log: cfg.Log, known: map[string]*onShelf{}}
}

// check returns an error if the directory does not exist. It lets Open report that early.
func (s *shelf) check() error {
	fi, err := os.Stat(s.cfg.Provided)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is not a directory", s.cfg.Provided)
	}
	if err != nil {
		return fmt.Errorf("looking for the skills that are provided: %w", err)
	}
	return nil
}

// list returns the provided skills by name. It skips directories that are not valid skills.
func (s *shelf) list(ctx context.Context) (list []Version) {
	entries, err := os.ReadDir(s.cfg.Provided)
	if err != nil {
		s.log.Error("the directory of skills cannot be read", "error", err)
		return nil
	}
	for _, e := range entries[:min(len(entries), maxSkills)] {
		if v, err := s.find(ctx, e.Name()); err == nil {
			list = append(list, v)
		}
	}
	return list
}

// find returns the current version of the skill in one directory.
func (s *shelf) find(ctx context.Context, name string) (Version, error) {
	if !validName.MatchString(name) || len(name) > maxName {
		return Version{}, noSkill(name)
	}
	dir, err := s.open(name)
	if err != nil {
		return Version{}, err
	}
	defer dir.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	tree, err := s.walk(ctx, name, dir)
	old := s.known[name]
	if err == nil && old != nil && old.look == tree.look {
		return old.v, old.err
	}
	if err == nil {
		tree.v, err = s.read(ctx, name, dir, tree)
	}
	if ctx.Err() != nil {
		return Version{}, ctx.Err()
	}
	if err != nil && (old == nil || fmt.Sprint(old.err) != err.Error()) {
		s.log.Warn("a directory of skills has one that cannot be used", "skill", name, "error", err)
	}
	s.known[name] = &onShelf{look: tree.look, v: tree.v, err: err}
	return tree.v, err
}

// open opens a skill's directory. It refuses a symbolic link, which could lead outside.
func (s *shelf) open(name string) (*os.Root, error) {
	all, err := os.OpenRoot(s.cfg.Provided)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of skills: %w", err)
	}
	defer all.Close()
	fi, err := all.Lstat(name)
	if err != nil || !fi.IsDir() {
		return nil, noSkill(name)
	}
	dir, err := all.OpenRoot(name)
	if err != nil {
		return nil, noSkill(name)
	}
	if _, err := dir.Lstat(manifestName); err != nil {
		dir.Close()
		return nil, noSkill(name)
	}
	return dir, nil
}

// A tree is the files of one directory.
type tree struct {
	look  [sha256.Size]byte
	files []treeFile
	at    time.Time // latest modification time
	v     Version
}

type treeFile struct {
	path string
	mode fs.FileMode
	size int64
}

// walk lists the files of a directory. It refuses files that a skill may not have.
func (s *shelf) walk(ctx context.Context, name string, dir *os.Root) (t tree, err error) {
	h, bytes := sha256.New(), int64(0)
	err = fs.WalkDir(dir.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return unreadable(name, path, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, _, err := splitPath(name + "/" + path); err != nil {
			return err
		}
		if !e.Type().IsRegular() {
			return proto.Errorf(proto.InvalidArgument, "", shown(path), "The file %.200q of the provided skill %q "+
				"is a link or a special file; a skill has ordinary files alone.", path, name)
		}
		fi, err := e.Info()
		if err != nil {
			return unreadable(name, path, err)
		}
		f := treeFile{path, modeOf(fi.Mode()&0o111 != 0), fi.Size()}
		t.files, bytes = append(t.files, f), bytes+f.size
		if fi.ModTime().After(t.at) {
			t.at = fi.ModTime()
		}
		fmt.Fprintf(h, "%q %o %d %d\n", path, f.mode, f.size, fi.ModTime().UnixNano())
		return s.bound(name, len(t.files), bytes)
	})
	h.Sum(t.look[:0])
	return t, err
}

// unreadable returns an error that does not contain the path on the host.
func unreadable(name, path string, err error) error {
	if err == nil {
		return nil
	}
	return proto.Errorf(proto.Unavailable, "", shown(path), "The file %.200q of the provided skill %q cannot be read.",
		path, name)
}

func (s *shelf) bound(name string, files int, bytes int64) error {
	switch {
	case files > s.cfg.MaxFiles:
		return proto.Errorf(proto.TooLarge, "", name, "The provided skill %q has more than the %d files that a "+
			"skill may have.", name, s.cfg.MaxFiles)
	case bytes > s.cfg.MaxBytes:
		return proto.Errorf(proto.TooLarge, "", name, "The provided skill %q has more than the %d bytes that a "+
			"skill may have.", name, s.cfg.MaxBytes)
	}
	return nil
}

// digestLength is the number of hex digits in a version. That is enough to distinguish the versions of one skill.
const digestLength = 16

// read reads a directory and returns its Version.
func (s *shelf) read(ctx context.Context, name string, dir *os.Root, t tree) (Version, error) {
	h, d := sha256.New(), &Draft{}
	for _, f := range t.files {
		fmt.Fprintf(h, "%q %o %d\n", f.path, f.mode, f.size)
		w := io.Writer(h)
		if f.path == manifestName {
			w = io.MultiWriter(h, frontOf{d})
		}
		if err := give(ctx, name, dir, f, w); err != nil {
			return Version{}, err
		}
	}
	m, err := parseManifest(name, d.front)
	if err == nil && m.Name != name {
		err = proto.Errorf(proto.InvalidArgument, "", name, "The provided skill in %q calls itself %q; give the "+
			"directory the same name.", name, m.Name)
	}
	at := t.at.UTC().Truncate(time.Microsecond)
	return Version{ID: hex.EncodeToString(h.Sum(nil))[:digestLength], SkillID: name, Source: Provided, Name: name,
		Description: m.Description, Created: at}, err
}

// give writes one file. It fails if the file is now shorter than when it was listed, and writes no more than that
// size.
func give(ctx context.Context, name string, dir *os.Root, f treeFile, w io.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, err := dir.Open(f.path)
	if err != nil {
		return unreadable(name, f.path, err)
	}
	defer in.Close()
	_, err = io.CopyN(w, in, f.size)
	if err == io.EOF {
		return proto.Errorf(proto.Unavailable, "", shown(f.path), "The provided skill %q is being changed; send the "+
			"request again.", name)
	}
	return err
}

// tar writes the current content of a skill.
func (s *shelf) tar(ctx context.Context, name string, to io.Writer) error {
	dir, err := s.open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	t, err := s.walk(ctx, name, dir)
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	for _, f := range t.files {
		if err := w.WriteHeader(tarHeader(f.path, f.mode, f.size, t.at)); err != nil {
			return err
		}
		if err := give(ctx, name, dir, f, w); err != nil {
			return err
		}
	}
	return w.Close()
}

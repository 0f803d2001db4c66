package skills

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"berth/proto"
	"berth/session"
	"berth/tools/skills/content"
)

// Mount mounts skills into a container, each at /skills/<name>/, owned by root. Skills that are mounted already stay;
// an older version is replaced. The skills are mounted again when the container restarts. Mount returns the
// references with their versions resolved.
func (s *Store) Mount(ctx context.Context, sess *session.Session, owner string, refs []proto.SkillRef) (
	[]proto.SkillRef, error) {
	list, err := s.Resolve(ctx, owner, refs)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	resolved, mounts := make([]proto.SkillRef, len(list)), make([]session.Mount, len(list))
	for i, v := range list {
		resolved[i] = proto.SkillRef{Type: v.Source, SkillID: v.SkillID, Version: v.ID}
		mounts[i] = session.Mount{Path: path.Join(s.cfg.Root, v.Name), Key: v.Source + "/" + v.SkillID + "/" + v.ID}
	}
	return resolved, sess.Provision(ctx, mounts)
}

// Resolve finds the skills for references. It refuses more skills than a container may have, and two skills with the
// same name.
func (s *Store) Resolve(ctx context.Context, owner string, refs []proto.SkillRef) ([]Version, error) {
	if len(refs) > s.cfg.MaxRefs {
		return nil, content.Invalid("container.skills", "A container may have at most %d skills, not %d.",
			s.cfg.MaxRefs, len(refs))
	}
	names, list := map[string]string{}, make([]Version, len(refs))
	for i, ref := range refs {
		switch {
		case ref.Type != Custom && ref.Type != Provided:
			return nil, content.Invalid("container.skills", "The type %q of skill %q is not known; use %q or %q.",
				shown(ref.Type), shown(ref.SkillID), Custom, Provided)
		case (ref.Type == Custom) != strings.HasPrefix(ref.SkillID, SkillPrefix):
			return nil, content.NoSkill(ref.SkillID)
		}
		v, err := s.Version(ctx, owner, ref.SkillID, cmp.Or(ref.Version, Latest))
		if err != nil {
			return nil, err
		}
		if other, taken := names[v.Name]; taken {
			return nil, content.Invalid(ref.SkillID, "The skills %q and %q have the same name, %q; use only one of "+
				"them.", other, ref.SkillID, v.Name)
		}
		names[v.Name], list[i] = ref.SkillID, v
	}
	return list, nil
}

// Tar returns the content of a version as a tar archive, for session.MountSource. For a provided skill it returns the
// current content, since older versions are not stored.
func (s *Store) Tar(ctx context.Context, owner, key string) (io.ReadCloser, error) {
	part := strings.SplitN(key, "/", 3)
	if len(part) != 3 {
		return nil, content.NoSkill(key)
	}
	if part[0] == Provided {
		if s.provided == nil {
			return nil, content.NoSkill(part[1])
		}
		return piped(func(w io.Writer) error { return s.provided.Tar(ctx, part[1], w) }), nil
	}
	z, err := s.openArchive(ctx, owner, part[1], part[2])
	if err != nil {
		return nil, err
	}
	return piped(func(w io.Writer) error {
		defer z.Close()
		return retar(ctx, z, w)
	}), nil
}

// openArchive opens the archive of an uploaded version.
func (s *Store) openArchive(ctx context.Context, owner, skill, version string) (*zip.ReadCloser, error) {
	v, err := s.Version(ctx, owner, skill, version)
	if err != nil {
		return nil, err
	}
	z, err := zip.OpenReader(s.archive(v.ID))
	if os.IsNotExist(err) { // deleted by a concurrent request
		return nil, noVersion(skill, version)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the archive of skill version %s: %w", v.ID, err)
	}
	return z, nil
}

// piped returns a reader of what fn writes. Closing the reader early ends fn.
func piped(fn func(io.Writer) error) io.ReadCloser {
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(fn(pw))
	}()
	return &pipeReader{pr, done}
}

// A pipeReader waits in Close until the writer has ended and has closed its files.
type pipeReader struct {
	*io.PipeReader
	done chan struct{}
}

func (r *pipeReader) Close() error {
	err := r.PipeReader.Close()
	<-r.done
	return err
}

// retar converts a stored zip archive to a tar archive.
func retar(ctx context.Context, z *zip.ReadCloser, to io.Writer) error {
	w := tar.NewWriter(to)
	for _, f := range z.File {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.WriteHeader(content.TarHeader(f.Name, f.Mode(), int64(f.UncompressedSize64),
			f.Modified)); err != nil {
			return err
		}
		in, err := f.Open()
		if err != nil {
			return fmt.Errorf("reading the archive of a skill: %w", err)
		}
		_, err = io.Copy(w, in)
		_ = in.Close()
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// WriteZip writes the content of a version as a zip archive with one directory, which has the skill's name. It calls
// ready before the first byte. If there is no such version, it writes nothing.
func (s *Store) WriteZip(ctx context.Context, owner, skill, version string, ready func(Version), to io.Writer) error {
	v, err := s.Version(ctx, owner, skill, version)
	if err != nil {
		return err
	}
	if v.Source == Provided {
		return proto.Errorf(proto.PermissionDenied, "", shown(skill), "Skill %q is provided by the daemon; its "+
			"files are in containers that have it, and cannot be downloaded.", shown(skill))
	}
	z, err := s.openArchive(ctx, owner, skill, v.ID)
	if err != nil {
		return err
	}
	defer z.Close()
	ready(v)
	w := zip.NewWriter(to)
	for _, f := range z.File {
		if err := copyZipped(w, f, v.Name); err != nil {
			return err
		}
	}
	return w.Close()
}

// copyZipped copies a compressed file into a directory of another archive.
func copyZipped(w *zip.Writer, f *zip.File, dir string) error {
	h := f.FileHeader
	h.Name = dir + "/" + h.Name
	out, err := w.CreateRaw(&h)
	if err != nil {
		return err
	}
	in, err := f.OpenRaw()
	if err == nil {
		_, err = io.Copy(out, in)
	}
	return err
}

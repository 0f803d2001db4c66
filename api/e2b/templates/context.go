package templates

import (
	"archive/tar"
	"io"
	"path"
)

// writeContext writes the build context of a template: its Dockerfile, and below a directory of its own the files of
// each COPY step.
func (u uploads) writeContext(w io.Writer, dockerfile, owner string, hashes []string) error {
	out := tar.NewWriter(w)
	err := out.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, dockerfile); err != nil {
		return err
	}
	for i, hash := range hashes {
		dir := copyDir(i + 1)
		if err := out.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return err
		}
		_, err := u.read(u.path(owner, hash), func(name string, h *tar.Header, content io.Reader) error {
			if name == "." || h.Typeflag == tar.TypeXGlobalHeader {
				return nil
			}
			return addMember(out, dir, name, h, content)
		})
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// addMember adds a member of an upload below a directory. The builder refuses kinds that cannot be copied.
func addMember(out *tar.Writer, dir, name string, h *tar.Header, content io.Reader) error {
	own := &tar.Header{Typeflag: h.Typeflag, Name: dir + "/" + name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode,
		ModTime: h.ModTime}
	switch h.Typeflag {
	case tar.TypeLink:
		own.Linkname = dir + path.Clean("/"+h.Linkname)
	case tar.TypeDir:
		own.Name += "/"
	}
	if err := out.WriteHeader(own); err != nil {
		return err
	}
	_, err := io.Copy(out, content)
	return err
}

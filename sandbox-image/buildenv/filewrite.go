package buildenv

import (
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// ReplaceFile replaces the file at path with the output of write, or leaves it unchanged.
func ReplaceFile(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once renamed
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// CopyFile makes dst a copy of src, without copying bytes if the file system can.
func CopyFile(dst, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	return ReplaceFile(dst, func(out *os.File) error {
		_, err := io.Copy(out, in)
		return err
	})
}

// WriteFiles writes files into the new directory dir. Embedded files have no modes: all are
// 0644 and their directories 0755.
func WriteFiles(dir string, files fs.FS) error {
	return fs.WalkDir(files, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(path.Clean(p)))
		if e.IsDir() {
			return os.Mkdir(target, 0o755)
		}
		data, err := fs.ReadFile(files, p)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

// WriteTexts writes files with these contents below dir. It makes missing directories.
func WriteTexts(dir string, texts map[string]string) error {
	for name, text := range texts {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Package durable writes files that survive a power cut.
//
// All packages that keep files of their own call it. It knows nothing about what is in them.
package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteFile puts a file with this mode at path, whole or not at all: readers and a crash see the old file or the new
// one. When it returns, the file and its name are on disk.
func WriteFile(path string, mode os.FileMode, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with mode 0600: no other user can read it meanwhile
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := errors.Join(write(f), f.Chmod(mode), f.Sync()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync flushes a file, or the names in a directory, to disk. A power cut then cannot take them back.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

package attack

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
)

// A canary is a directory on the host with one file. No container may read or change it. The attacking program
// creates it, so it is useful only on the daemon's host, where the program runs by default.
type canary struct {
	dir, file string
	secret    string // content of the file
}

// newCanary creates a canary; close removes it.
func newCanary() (*canary, error) {
	dir, err := os.MkdirTemp("", "berth-canary-")
	if err != nil {
		// Name and content cannot be guessed. So if they appear in an answer, they came from the file and not from
		// the request.
		return nil, err
	}
	c := &canary{dir: dir, file: filepath.Join(dir, "secret"), secret: rand.Text()}
	if err := os.Chmod(dir, 0o777); err != nil { // permissions must not be what protects it
		return nil, err
	}
	return c, os.WriteFile(c.file, []byte(c.secret), 0o666)
}

// close removes the directory, including what an attack added to it.
func (c *canary) close() { _ = os.RemoveAll(c.dir) }

// in returns a Breach if data, which an attack has obtained, contains the canary's secret.
func (c *canary) in(what string, data []byte) error {
	if bytes.Contains(data, []byte(c.secret)) {
		return Breached("%s shows a file of the host", what)
	}
	return nil
}

// unharmed returns a Breach if the canary has changed.
func (c *canary) unharmed(what string) error {
	data, err := os.ReadFile(c.file)
	entries, dirErr := os.ReadDir(c.dir)
	if err != nil || dirErr != nil || string(data) != c.secret || len(entries) != 1 {
		return Breached("%s changed files of the host", what)
	}
	return nil
}

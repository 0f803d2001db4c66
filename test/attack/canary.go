package attack

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
)

// A canary is a directory of the host's with one file in it, which no container may learn of or change. It is made by
// the attacking program, so it tells something only where that runs on the daemon's host, as it does by default.
type canary struct {
	dir, file string
	secret    string // what the file holds
}

// newCanary makes one; close removes it.
func newCanary() (*canary, error) {
	dir, err := os.MkdirTemp("", "berth-canary-")
	if err != nil {
		// A name and a content that nobody can guess: what shows up in an answer came from the file, and
		// not from the request that asked for it.
		return nil, err
	}
	c := &canary{dir: dir, file: filepath.Join(dir, "secret"), secret: rand.Text()}
	if err := os.Chmod(dir, 0o777); err != nil { // whoever gets here shall be able to do harm
		return nil, err
	}
	return c, os.WriteFile(c.file, []byte(c.secret), 0o666)
}

// close leaves no trace on the host; what an attack added to the directory goes with it.
func (c *canary) close() { _ = os.RemoveAll(c.dir) }

// in is a Breach if the canary's secret is in data, which is what an attack brought back.
func (c *canary) in(what string, data []byte) error {
	if bytes.Contains(data, []byte(c.secret)) {
		return Breached("%s shows a file of the host", what)
	}
	return nil
}

// unharmed is a Breach if the canary is not as it was.
func (c *canary) unharmed(what string) error {
	data, err := os.ReadFile(c.file)
	entries, dirErr := os.ReadDir(c.dir)
	if err != nil || dirErr != nil || string(data) != c.secret || len(entries) != 1 {
		return Breached("%s changed files of the host", what)
	}
	return nil
}

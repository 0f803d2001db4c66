// Package mutants tests the tests: it breaks one promise of docs/security.md at a time, in a copy of the program, and
// checks that the breach is noticed.
//
// A Mutant replaces a few words of the source. The build takes them from an overlay, so the tree stays as it is. An
// attack must get through, and a Go test must fail, both named by the mutant. `make mutants` tries all of them, which
// takes about a minute each; `make test` tries few and checks that the others fit the source.
package mutants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Mutant is one breach.
type Mutant struct {
	Name  string // what is broken; unique
	Edits []Edit // most need one; a promise that is kept twice must be broken twice
	Case  string // name of the attack that gets through
	Test  string // package and name of the Go test that fails
}

// An Edit replaces text that occurs once in a file of the repository.
type Edit struct{ File, Old, New string }

// test splits Test into the package's directory and the function.
func (m Mutant) test() (dir, name string) {
	dir, name, _ = strings.Cut(m.Test, " ")
	return dir, name
}

// breach returns the mutated files of a repository by their paths.
func breach(root string, list []Mutant) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, m := range list {
		for _, e := range m.Edits {
			path := filepath.Join(root, e.File)
			text, known := files[path]
			if !known {
				var err error
				if text, err = os.ReadFile(path); err != nil {
					return nil, err
				}
			}
			if n := bytes.Count(text, []byte(e.Old)); n != 1 {
				return nil, fmt.Errorf("%s: %q occurs %d times in %s, must occur once", m.Name, e.Old, n, e.File)
			}
			files[path] = bytes.Replace(text, []byte(e.Old), []byte(e.New), 1)
		}
	}
	return files, nil
}

// overlay writes the mutated files to dir, and a list of them for the flag -overlay of the go command.
func overlay(root, dir string, list []Mutant) (path string, err error) {
	files, err := breach(root, list)
	if err != nil {
		return "", err
	}
	var o struct{ Replace map[string]string }
	o.Replace = map[string]string{}
	for file, text := range files {
		to := filepath.Join(dir, fmt.Sprintf("%d-%s", len(o.Replace), filepath.Base(file)))
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		o.Replace[file] = to
	}
	data, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o644)
}

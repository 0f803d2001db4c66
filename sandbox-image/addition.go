package sandboximage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"berth/code/driver"
)

// Files of an image that extends another, and of the layers that it adds. The last group is optional, but no layer
// may be empty.
const (
	fromFile = "from.txt"
	envFile  = "env.txt"

	packagesFile = "packages.txt"
	wheelsFile   = "wheels.txt"
	npmFile      = "package.json"
	npmLockFile  = "package-lock.json"
	prepareFile  = "prepare.sh"
	setupFile    = "setup.sh"
	filesDir     = "files"
)

// An addition is one layer that an image adds to another.
type addition struct {
	name     string // its directory's name without the number that orders it
	packages []string
	wheels   []wheel
	npm      bool              // has npm modules
	prepare  string            // shell script run inside, first; may be empty
	setup    string            // shell script run inside, last; may be empty
	tree     fs.FS             // the directory itself
	borrowed map[string]string // files from other packages, by their path in the image
	hash     string            // of everything
}

// parseExtension reads a definition that extends another one in fsys.
func parseExtension(fsys fs.FS, name string) (definition, error) {
	d := definition{name: name}
	from, err := fs.ReadFile(fsys, path.Join(name, fromFile))
	if err != nil {
		return d, err
	}
	below := lines(string(from))
	if len(below) != 1 || below[0] == name {
		return d, fmt.Errorf("%s names one other image", fromFile)
	}
	lower, err := parse(fsys, below[0])
	if err != nil {
		return d, err
	}
	if lower.from != nil {
		return d, fmt.Errorf("%s: %s adds to another image itself", fromFile, lower.name)
	}
	env, err := fs.ReadFile(fsys, path.Join(name, envFile))
	if err != nil {
		return d, err
	}
	own, err := environment(string(env))
	if err != nil {
		return d, err
	}
	d.from, d.env, d.files = &lower, append(lower.env[:len(lower.env):len(lower.env)], own...), lower.files
	if err := d.parseAdditions(fsys); err != nil {
		return d, err
	}
	tree, err := hashTree(fsys, name)
	parts := []string{tree}
	for _, a := range d.additions {
		parts = append(parts, a.hash)
	}
	d.key = chainKey(lower.key, parts...)
	return d, err
}

// chainKey returns the key of a layer made from next on top of the layer with the key below.
func chainKey(below string, next ...string) string {
	h := sha256.Sum256([]byte(below + "\n" + strings.Join(next, "\n")))
	return hex.EncodeToString(h[:])
}

// parseAdditions reads the directories of a definition: "1-fonts" comes before "2-office".
func (d *definition) parseAdditions(fsys fs.FS) error {
	entries, err := fs.ReadDir(fsys, d.name)
	if err != nil {
		return err
	}
	for _, e := range entries { // sorted
		if !e.IsDir() {
			continue
		}
		number, name, ok := strings.Cut(e.Name(), "-")
		if !ok || len(number) != 1 || name == "" {
			return fmt.Errorf("%s: a layer's directory is named like 1-name", e.Name())
		}
		a, err := parseAddition(fsys, path.Join(d.name, e.Name()), name)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		d.additions = append(d.additions, a)
	}
	if len(d.additions) == 0 {
		return errors.New("it adds nothing")
	}
	return nil
}

// parseAddition reads the layer in dir.
func parseAddition(fsys fs.FS, dir, name string) (addition, error) {
	a := addition{name: name}
	text := map[string]string{}
	for _, file := range []string{packagesFile, wheelsFile, npmFile, npmLockFile, prepareFile, setupFile} {
		data, err := fs.ReadFile(fsys, path.Join(dir, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
		text[file] = string(data)
	}
	a.prepare, a.setup, a.npm = text[prepareFile], text[setupFile], text[npmFile] != ""
	var err error
	if a.packages, err = packageNames(text[packagesFile]); err != nil {
		return a, err
	}
	if a.wheels, err = parseWheels(text[wheelsFile]); err != nil {
		return a, err
	}
	if err := checkModules(text[npmFile], text[npmLockFile]); err != nil {
		return a, err
	}
	if len(a.packages)+len(a.wheels) == 0 && !a.npm && a.setup == "" {
		return a, errors.New("it has nothing to install and nothing to run")
	}
	if a.tree, err = fs.Sub(fsys, dir); err != nil {
		return a, err
	}
	if a.hash, err = hashTree(fsys, dir); err != nil {
		return a, err
	}
	if a.borrowed = borrowed[name]; a.borrowed != nil {
		for _, file := range slices.Sorted(maps.Keys(a.borrowed)) {
			a.hash = chainKey(a.hash, file, a.borrowed[file])
		}
	}
	return a, nil
}

// checkModules refuses npm modules that are not all pinned by hash, and a lock file that names where they were
// downloaded.
func checkModules(wanted, lock string) error {
	if wanted == "" && lock == "" {
		return nil
	}
	var l struct {
		Packages map[string]struct {
			Integrity, Resolved string
		}
	}
	if err := json.Unmarshal([]byte(lock), &l); err != nil {
		return fmt.Errorf("%s: %w", npmLockFile, err)
	}
	if len(l.Packages) < 2 { // "" is the list of wanted modules
		return fmt.Errorf("%s pins nothing", npmLockFile)
	}
	for name, p := range l.Packages {
		if name != "" && p.Integrity == "" {
			return fmt.Errorf("%s: %s has no integrity", npmLockFile, name)
		}
		if p.Resolved != "" {
			return fmt.Errorf("%s: %s says where it was downloaded from; make it with omit-lockfile-registry-resolved",
				npmLockFile, name)
		}
	}
	return nil
}

// borrowed holds files that layers get from other packages, by the layer's name. The program that starts Java for
// package code is compiled in the image, which halves its start.
var borrowed = map[string]map[string]string{
	"languages": {driver.JavaDir + "/Driver.java": driver.Java},
}

// writeFiles copies the layer's own files into dir, over what it installs.
func (a addition) writeFiles(dir string) error {
	if files := a.files(); files != nil {
		if err := writeFiles(dir, files); err != nil {
			return err
		}
	}
	return writeTexts(dir, a.borrowed)
}

// files returns the files that the layer copies over what it installs; nil if it has none.
func (a addition) files() fs.FS {
	if info, err := fs.Stat(a.tree, filesDir); err != nil || !info.IsDir() {
		return nil
	}
	files, err := fs.Sub(a.tree, filesDir)
	if err != nil {
		return nil // only an invalid name fails, and this one is valid
	}
	return files
}

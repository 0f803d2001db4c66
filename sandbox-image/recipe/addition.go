package recipe

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
	"berth/sandbox-image/buildenv"
)

// Files of an image that extends another, and of the layers that it adds. The last group is optional, but no layer
// may be empty.
const (
	fromFile = "from.txt"
	envFile  = "env.txt"

	packagesFile = "packages.txt"
	WheelsFile   = "wheels.txt"
	NPMFile      = "package.json"
	NPMLockFile  = "package-lock.json"
	PrepareFile  = "prepare.sh"
	SetupFile    = "setup.sh"
	FilesDir     = "files"
)

// An addition is one layer that an image adds to another.
type Layer struct {
	Name     string // its directory's name without the number that orders it
	Packages []string
	Wheels   []Wheel
	NPM      bool              // has npm modules
	Prepare  string            // shell script run inside, first; may be empty
	Setup    string            // shell script run inside, last; may be empty
	Tree     fs.FS             // the directory itself
	borrowed map[string]string // files from other packages, by their path in the image
	Hash     string            // of everything
}

// parseExtension reads a definition that extends another one in fsys.
func parseExtension(fsys fs.FS, name string) (Definition, error) {
	d := Definition{Name: name}
	from, err := fs.ReadFile(fsys, path.Join(name, fromFile))
	if err != nil {
		return d, err
	}
	below := lines(string(from))
	if len(below) != 1 || below[0] == name {
		return d, fmt.Errorf("%s names one other image", fromFile)
	}
	lower, err := Parse(fsys, below[0])
	if err != nil {
		return d, err
	}
	if lower.From != nil {
		return d, fmt.Errorf("%s: %s adds to another image itself", fromFile, lower.Name)
	}
	env, err := fs.ReadFile(fsys, path.Join(name, envFile))
	if err != nil {
		return d, err
	}
	own, err := environment(string(env))
	if err != nil {
		return d, err
	}
	d.From, d.Env, d.Files = &lower, append(lower.Env[:len(lower.Env):len(lower.Env)], own...), lower.Files
	if err := d.parseAdditions(fsys); err != nil {
		return d, err
	}
	tree, err := hashTree(fsys, name)
	parts := []string{tree}
	for _, a := range d.Additions {
		parts = append(parts, a.Hash)
	}
	d.Key = ChainKey(lower.Key, parts...)
	return d, err
}

// ChainKey returns the key of a layer made from next on top of the layer with the key below.
func ChainKey(below string, next ...string) string {
	h := sha256.Sum256([]byte(below + "\n" + strings.Join(next, "\n")))
	return hex.EncodeToString(h[:])
}

// parseAdditions reads the directories of a definition: "1-fonts" comes before "2-office".
func (d *Definition) parseAdditions(fsys fs.FS) error {
	entries, err := fs.ReadDir(fsys, d.Name)
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
		a, err := parseAddition(fsys, path.Join(d.Name, e.Name()), name)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		d.Additions = append(d.Additions, a)
	}
	if len(d.Additions) == 0 {
		return errors.New("it adds nothing")
	}
	return nil
}

// parseAddition reads the layer in dir.
func parseAddition(fsys fs.FS, dir, name string) (Layer, error) {
	a := Layer{Name: name}
	text := map[string]string{}
	for _, file := range []string{packagesFile, WheelsFile, NPMFile, NPMLockFile, PrepareFile, SetupFile} {
		data, err := fs.ReadFile(fsys, path.Join(dir, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
		text[file] = string(data)
	}
	a.Prepare, a.Setup, a.NPM = text[PrepareFile], text[SetupFile], text[NPMFile] != ""
	var err error
	if a.Packages, err = packageNames(text[packagesFile]); err != nil {
		return a, err
	}
	if a.Wheels, err = ParseWheels(text[WheelsFile]); err != nil {
		return a, err
	}
	if err := checkModules(text[NPMFile], text[NPMLockFile]); err != nil {
		return a, err
	}
	if len(a.Packages)+len(a.Wheels) == 0 && !a.NPM && a.Setup == "" {
		return a, errors.New("it has nothing to install and nothing to run")
	}
	if a.Tree, err = fs.Sub(fsys, dir); err != nil {
		return a, err
	}
	if a.Hash, err = hashTree(fsys, dir); err != nil {
		return a, err
	}
	if a.borrowed = borrowed[name]; a.borrowed != nil {
		for _, file := range slices.Sorted(maps.Keys(a.borrowed)) {
			a.Hash = ChainKey(a.Hash, file, a.borrowed[file])
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
		return fmt.Errorf("%s: %w", NPMLockFile, err)
	}
	if len(l.Packages) < 2 { // "" is the list of wanted modules
		return fmt.Errorf("%s pins nothing", NPMLockFile)
	}
	for name, p := range l.Packages {
		if name != "" && p.Integrity == "" {
			return fmt.Errorf("%s: %s has no integrity", NPMLockFile, name)
		}
		if p.Resolved != "" {
			return fmt.Errorf("%s: %s says where it was downloaded from; make it with omit-lockfile-registry-resolved",
				NPMLockFile, name)
		}
	}
	return nil
}

// borrowed holds files that layers get from other packages, by the layer's name. The program that starts Java for
// package code is compiled in the image, which halves its start.
var borrowed = map[string]map[string]string{
	"languages": {driver.JavaDir + "/Driver.java": driver.Java},
}

// WriteFiles copies the layer's own files into dir, over what it installs.
func (a Layer) WriteFiles(dir string) error {
	if files := a.files(); files != nil {
		if err := buildenv.WriteFiles(dir, files); err != nil {
			return err
		}
	}
	return buildenv.WriteTexts(dir, a.borrowed)
}

// files returns the files that the layer copies over what it installs; nil if it has none.
func (a Layer) files() fs.FS {
	if info, err := fs.Stat(a.Tree, FilesDir); err != nil || !info.IsDir() {
		return nil
	}
	files, err := fs.Sub(a.Tree, FilesDir)
	if err != nil {
		return nil // only an invalid name fails, and this one is valid
	}
	return files
}

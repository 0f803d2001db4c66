// Package recipe reads and checks the definitions of images: their lists of packages, scripts, files and environment,
// and the layers that an image adds to another. It computes the keys that tell whether an archive or a layer fits its
// definition. Package sandboximage has the definitions and builds them.
package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"

	"berth/sandbox-image/debian"
)

// format is part of every key. Raise it when the code makes something else of the same definition.
const format = "berth image 1"

// A definition is the content of one image: packages alone, or another image and its additions.
type Definition struct {
	Name string
	Env  []string // NAME=value
	Key  string   // hash of everything, and of the architecture

	Packages []string
	Wheels   []Wheel // may be empty
	Dpkg     string  // options for dpkg's configuration
	Prepare  string  // shell script run before most packages are installed
	Setup    string  // shell script run after all of them
	Files    fs.FS   // copied over the installed packages

	From      *Definition // the image that this one extends; nil: none
	Additions []Layer     // in order, each becomes a layer
}

// Parse reads the definition in directory name of fsys.
func Parse(fsys fs.FS, name string) (Definition, error) {
	if _, err := fs.Stat(fsys, path.Join(name, fromFile)); err == nil {
		return parseExtension(fsys, name)
	}
	d := Definition{Name: name}
	text := map[string]string{}
	for _, file := range []string{"packages.txt", "env.txt", "dpkg.cfg", "prepare.sh", "setup.sh"} {
		data, err := fs.ReadFile(fsys, path.Join(name, file))
		if err != nil {
			return d, err
		}
		text[file] = string(data)
	}
	d.Dpkg, d.Prepare, d.Setup = text["dpkg.cfg"], text["prepare.sh"], text["setup.sh"]
	var err error
	if d.Packages, err = packageNames(text["packages.txt"]); err != nil {
		return d, err
	}
	wheels, err := fs.ReadFile(fsys, path.Join(name, WheelsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	if d.Wheels, err = ParseWheels(string(wheels)); err != nil {
		return d, err
	}
	if d.Env, err = environment(text["env.txt"]); err != nil {
		return d, err
	}
	if d.Files, err = fs.Sub(fsys, path.Join(name, "files")); err != nil {
		return d, err
	}
	if _, err = fs.Stat(d.Files, debian.Sources); err != nil {
		return d, err
	}
	d.Key, err = hashTree(fsys, name)
	return d, err
}

// lines returns the lines of text without blank ones and comments. A comment begins a line or follows a blank.
func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(" "+line, " #")
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func packageNames(text string) ([]string, error) {
	var names []string
	for _, line := range lines(text) {
		for _, name := range strings.Fields(line) {
			if !debian.PackageName.MatchString(name) {
				return nil, fmt.Errorf("packages.txt: %q is not a package name", name)
			}
			if slices.Contains(names, name) {
				return nil, fmt.Errorf("packages.txt: %s is listed twice", name)
			}
			names = append(names, name)
		}
	}
	return names, nil
}

func environment(text string) ([]string, error) {
	env := lines(text)
	for _, line := range env {
		if name, _, ok := strings.Cut(line, "="); !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("env.txt: %q is not NAME=value", line)
		}
	}
	return env, nil
}

// hashTree hashes the names and contents below dir, and everything else that determines the result.
func hashTree(fsys fs.FS, dir string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", format, runtime.GOARCH)
	err := fs.WalkDir(fsys, dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, p)
		// Lengths separate the end of one file from the start of the next.
		fmt.Fprintf(h, "%d %s %d\n", len(p), p, len(data))
		h.Write(data)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

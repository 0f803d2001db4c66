package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile matches the names of files that a distributor of a module has to pass on.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)

// A debianPackage is an unpacked package whose files are in a release.
type debianPackage struct{ name, version, copyright string }

// changelogHead matches the first line of a package's changelog.
var changelogHead = regexp.MustCompile(`^\S+ \(([^)]+)\)`)

// debianPackages lists the packages below root that have libraries or programs of a release. The others are what those
// depend on, and are not used.
func debianPackages(root string) ([]debianPackage, error) {
	var list []debianPackage
	for _, name := range []string{"btrfs-progs", "ca-certificates", "libblkid1", "libc6", "liblzo2-2", "libseccomp2",
		"libudev1", "libuuid1", "libzstd1", "zlib1g"} {
		doc := filepath.Join(root, "usr/share/doc", name)
		copyright, err := os.ReadFile(filepath.Join(doc, "copyright"))
		if errors.Is(err, os.ErrNotExist) {
			continue // not needed by this version of btrfs-progs
		} else if err != nil {
			return nil, err
		}
		version, err := changelogVersion(doc)
		if err != nil {
			return nil, err
		}
		list = append(list, debianPackage{name, version, string(copyright)})
	}
	return list, nil
}

// changelogVersion reads a package's version from its changelog: unpacked packages have no other record.
func changelogVersion(doc string) (string, error) {
	for _, name := range []string{"changelog.Debian.gz", "changelog.gz"} {
		f, err := os.Open(filepath.Join(doc, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return "", err
		}
		defer f.Close()
		unpacked, err := gzip.NewReader(f)
		if err != nil {
			return "", err
		}
		line, _ := bufio.NewReader(unpacked).ReadString('\n')
		if m := changelogHead.FindStringSubmatch(line); m != nil {
			return m[1], nil
		}
	}
	return "", fmt.Errorf("%s has no changelog with a version", doc)
}

// writeNotices writes the licences of all modules and packages. A text that several of them share is written once.
func writeNotices(path string, modules []string, packages []debianPackage) error {
	dirs, err := moduleDirs(modules)
	if err != nil {
		return err
	}
	users := map[string][]string{} // by text
	for _, m := range modules {
		entries, err := os.ReadDir(dirs[m])
		if err != nil {
			return err
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !licenceFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dirs[m], e.Name()))
			if err != nil {
				return err
			}
			found = true
			users[string(text)] = append(users[string(text)], m)
		}
		if !found {
			return fmt.Errorf("module %s has no licence in %s", m, dirs[m])
		}
	}
	for _, p := range packages {
		users[p.copyright] = append(users[p.copyright], "Debian's package "+p.name+" "+p.version)
	}
	var out bytes.Buffer
	out.WriteString("The programs of this release contain the following. Each list is followed by its licence.\n" +
		"Source code: the modules by `go mod download`, Debian's packages by `apt-get source`.\n" +
		"runc is linked with libseccomp and libc6, which are under the LGPL: `make release` links it anew.\n")
	texts := make([]string, 0, len(users))
	for text := range users {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(x, y string) int { return strings.Compare(users[x][0]+x, users[y][0]+y) })
	for _, text := range texts {
		list := strings.Join(slices.Compact(users[text]), "\n")
		fmt.Fprintf(&out, "\n%s\n\n%s\n\n%s\n", strings.Repeat("=", 80), list, strings.TrimSpace(text))
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// moduleDirs returns the directories of the modules' sources, which it downloads if the module cache lacks them.
func moduleDirs(modules []string) (map[string]string, error) {
	dirs := map[string]string{}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		if strings.HasPrefix(m, "std@") {
			root, err := exec.Command("go", "env", "GOROOT").Output()
			if err != nil {
				return nil, err
			}
			dirs[m] = strings.TrimSpace(string(root))
			continue
		}
		args = append(args, m)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("downloading modules: %w", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, err
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}

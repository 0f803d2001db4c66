package debian

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A pkg is one Debian package in one version.
type Package struct {
	name, version, arch string
	size                int64
	sha256              string
	stanza              string // its entry in the package lists, without Filename
}

// cacheName is the file name under which apt keeps the package.
func (p Package) cacheName() string {
	return p.name + "_" + strings.ReplaceAll(p.version, ":", "%3a") + "_" + p.arch + ".deb"
}

// PackageName is Debian policy's rule. It also keeps options for apt out of the list.
var PackageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// A packageSet is all packages of an image, in the order of installation.
type PackageSet []Package

// Fingerprint identifies the set by the contents of its packages.
func (s PackageSet) Fingerprint() string {
	h := sha256.New()
	for _, p := range s {
		fmt.Fprintf(h, "%s %s %s %s\n", p.name, p.version, p.arch, p.sha256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// parsePackages reads the stanzas of a package list. Several sources may offer the same package: the first counts.
func parsePackages(text string) (PackageSet, error) {
	var set PackageSet
	seen := map[string]bool{}
	for stanza := range strings.SplitSeq(text, "\n\n") {
		if strings.TrimSpace(stanza) == "" {
			continue
		}
		p, err := parseStanza(stanza)
		if err != nil {
			return nil, err
		}
		if !seen[p.name] {
			seen[p.name] = true
			set = append(set, p)
		}
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("no package in the list")
	}
	return set, nil
}

func parseStanza(stanza string) (Package, error) {
	var p Package
	var rest strings.Builder
	for line := range strings.Lines(stanza) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		switch key {
		case "Package":
			p.name = value
		case "Version":
			p.version = value
		case "Architecture":
			p.arch = value
		case "SHA256":
			p.sha256 = value
		case "Size":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return p, fmt.Errorf("package %s: size %q", p.name, value)
			}
			p.size = n
		case "Filename":
			continue // repository sets its own
		}
		rest.WriteString(strings.TrimRight(line, "\n") + "\n")
	}
	p.stanza = rest.String()
	if !PackageName.MatchString(p.name) || p.version == "" || p.arch == "" || len(p.sha256) != 64 {
		return p, fmt.Errorf("package %q: incomplete entry", p.name)
	}
	return p, nil
}

// absent returns the packages of the set that the cache lacks or has incompletely.
func (a *Apt) absent(set PackageSet) PackageSet {
	var out PackageSet
	for _, p := range set {
		info, err := os.Stat(filepath.Join(a.dir, "archives", p.cacheName()))
		if err != nil || info.Size() != p.size {
			out = append(out, p)
		}
	}
	return out
}

// Repository makes dir a package repository of exactly the set, so that mmdebstrap installs what the host's apt
// decided. It returns the time of the newest package as the image's: the same packages give the same image.
func (a *Apt) Repository(dir string, set PackageSet) (epoch time.Time, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return epoch, err
	}
	var list bytes.Buffer
	for _, p := range set {
		// Plain names: apt's methods disagree about percent signs in paths.
		name := p.name + "_" + p.arch + ".deb"
		file := filepath.Join(dir, name)
		if err := os.Link(filepath.Join(a.dir, "archives", p.cacheName()), file); err != nil {
			return epoch, err
		}
		made, err := debTime(file)
		if err != nil {
			return epoch, err
		}
		if made.After(epoch) {
			epoch = made
		}
		fmt.Fprintf(&list, "%sFilename: ./%s\n\n", p.stanza, name)
	}
	return epoch, os.WriteFile(filepath.Join(dir, "Packages"), list.Bytes(), 0o644)
}

// debTime returns when a .deb was made: the date in the ar header of its first member, which dpkg-deb takes from the
// package's changelog.
func debTime(file string) (time.Time, error) {
	f, err := os.Open(file)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	// "!<arch>\n", then name[16] and mtime[12] in decimal, padded with blanks.
	var head [36]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return time.Time{}, err
	}
	sec, err := strconv.ParseInt(strings.TrimSpace(string(head[24:])), 10, 64)
	if err != nil || !bytes.HasPrefix(head[:], []byte("!<arch>\n")) {
		return time.Time{}, fmt.Errorf("%s is no Debian package", filepath.Base(file))
	}
	return time.Unix(sec, 0).UTC(), nil
}

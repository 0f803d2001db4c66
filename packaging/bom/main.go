// Command bom writes what a release is made of: a CycloneDX bill of materials, and the licences of third parties.
//
// Both come from the programs themselves: a Go program names the modules that it was linked from, with their versions.
// cyclonedx-gomod reads one program at a time; this command joins its results. Debian's packages, whose libraries are
// linked into runc or copied into the image of the daemon, come from a root file system that they were unpacked into.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "version of the release")
	sbom := flag.String("sbom", "", "bill of materials to write")
	notices := flag.String("notices", "", "file of licences to write")
	root := flag.String("root", "", "directory with Debian's unpacked packages")
	flag.Parse()
	if err := run(*version, *sbom, *notices, *root, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bom:", err)
		os.Exit(1)
	}
}

func run(version, sbom, notices, root string, programs []string) error {
	packages, err := debianPackages(root)
	if err != nil {
		return err
	}
	b := newBill(version)
	for _, path := range programs {
		if err := b.addProgram(path); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
	}
	for _, p := range packages {
		url := "pkg:deb/debian/" + p.name + "@" + p.version
		b.add(cdx.Component{Type: cdx.ComponentTypeLibrary, Name: p.name, Version: p.version,
			PackageURL: url, BOMRef: url})
	}
	if err := b.write(sbom); err != nil {
		return err
	}
	return writeNotices(notices, b.modules(), packages)
}

// A bill is the bill of materials of all programs. A module that several programs have is in it once.
type bill struct {
	root       cdx.Component
	components map[string]cdx.Component // by reference
	depends    map[string][]string      // references, by that of a program
}

func newBill(version string) *bill {
	ref := "pkg:generic/berth@" + version
	return &bill{
		root:       cdx.Component{Type: cdx.ComponentTypeApplication, Name: "berth", Version: version, BOMRef: ref},
		components: map[string]cdx.Component{}, depends: map[string][]string{},
	}
}

func (b *bill) add(c cdx.Component) { b.components[c.BOMRef] = c }

// addProgram adds a program with its hash, and the modules that it was linked from.
func (b *bill) addProgram(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out, err := exec.Command("go", "tool", "cyclonedx-gomod", "bin", "-json", "-std", "-noserial", "-notimestamp",
		path).Output()
	if err != nil {
		return err
	}
	var of cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(out), cdx.BOMFileFormatJSON).Decode(&of); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	program := cdx.Component{Type: cdx.ComponentTypeApplication, Name: filepath.Base(path), Version: b.root.Version,
		BOMRef: b.root.BOMRef + "#" + filepath.Base(path),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}}
	b.add(program)
	b.depends[b.root.BOMRef] = append(b.depends[b.root.BOMRef], program.BOMRef)
	modules := *of.Components
	if main := *of.Metadata.Component; !own(main.Name) {
		main.Components, main.Type = nil, cdx.ComponentTypeLibrary
		modules = append(modules, main)
	}
	for _, m := range modules {
		if own(m.Name) {
			continue
		}
		// Without this, the reference names the platform of the program that had the module last.
		m.PackageURL, _, _ = strings.Cut(m.PackageURL, "?")
		m.BOMRef = m.PackageURL
		b.add(m)
		b.depends[program.BOMRef] = append(b.depends[program.BOMRef], m.BOMRef)
	}
	return nil
}

// own reports whether the module is one of this project, by its path or by the directory that replaces it.
func own(module string) bool {
	return module == "berth" || strings.HasPrefix(module, "berth/") || strings.HasPrefix(module, ".")
}

// modules lists the Go modules as PATH@VERSION, sorted; the standard library is "std".
func (b *bill) modules() []string {
	var list []string
	for _, c := range b.components {
		if strings.HasPrefix(c.PackageURL, "pkg:golang/") {
			list = append(list, c.Name+"@"+c.Version)
		}
	}
	slices.Sort(list)
	return list
}

// write writes the bill in an order that depends on its content alone. A time and a random serial number would make
// every run another.
func (b *bill) write(path string) error {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &b.root}
	var components []cdx.Component
	for _, c := range b.components {
		components = append(components, c)
	}
	slices.SortFunc(components, func(x, y cdx.Component) int { return strings.Compare(x.BOMRef, y.BOMRef) })
	bom.Components = &components
	var depends []cdx.Dependency
	for ref, on := range b.depends {
		slices.Sort(on)
		on = slices.Compact(on)
		depends = append(depends, cdx.Dependency{Ref: ref, Dependencies: &on})
	}
	slices.SortFunc(depends, func(x, y cdx.Dependency) int { return strings.Compare(x.Ref, y.Ref) })
	bom.Dependencies = &depends
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

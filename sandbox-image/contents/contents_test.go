package contents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirement is a word of wheels.in: the name of a distribution, with extras and versions.
var requirement = regexp.MustCompile(`^([A-Za-z0-9._-]+)(\[[^\]]*\])?([<>=!~].*)?$`)

// words returns the words of the lists that match the pattern, without comments.
func words(t *testing.T, patterns ...string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		lists, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range lists {
			data, err := os.ReadFile(list)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(data)) {
				line, _, _ = strings.Cut(line, "#")
				all = append(all, strings.Fields(line)...)
			}
		}
	}
	return all
}

// Every package that an image installs by name is known here, and no other.
func TestModulesAreThoseOfTheImages(t *testing.T) {
	for _, i := range images {
		installed := map[string]bool{}
		for _, word := range words(t, "../"+i.name+"/wheels.in", "../"+i.name+"/*/wheels.in") {
			if m := requirement.FindStringSubmatch(word); m != nil {
				installed[m[1]] = true
			} else if !strings.HasPrefix(word, "!") {
				t.Errorf("%s: %q in wheels.in", i.name, word)
			}
		}
		for name := range installed {
			if _, ok := i.modules[name]; !ok {
				t.Errorf("%s: the modules of %s are not known", i.name, name)
			}
		}
		for name := range i.modules {
			if !installed[name] {
				t.Errorf("%s is not in the image %s", name, i.name)
			}
		}
		packages := words(t, "../"+i.name+"/packages.txt")
		for name := range i.debian {
			if !slices.Contains(packages, name) {
				t.Errorf("%s is not in the image %s", name, i.name)
			}
		}
	}
	for name, want := range map[string]string{"docx": "base", "docx.shared": "base", "cv2": "full",
		"google.genai": "full", "pandas": "base", "python-docx": "", "documents": "", "": ""} {
		if got := Module(name); got != want {
			t.Errorf("module %q is in %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"npm": "base", "ffmpeg": "full", "java": "dev", "gcc": "dev",
		"Rscript": "full", "nonesuch": ""} {
		if got := Program(name); got != want {
			t.Errorf("program %q is in %q, want %q", name, got, want)
		}
	}
}

func TestNodeModulesAreThoseOfTheImage(t *testing.T) {
	data, err := os.ReadFile("../full/3-languages/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(data, &list); err != nil || len(list.Dependencies) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	for name := range list.Dependencies {
		if NodeModule(name) != "full" || NodeModule(name+"/lib/main") != "full" {
			t.Errorf("%s is not known", name)
		}
	}
}

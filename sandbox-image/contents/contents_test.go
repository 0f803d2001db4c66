package contents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// requirement is a line of wheels.in: names of distributions, each with extras and versions.
var requirement = regexp.MustCompile(`([A-Za-z0-9._-]+)(\[[^\]]*\])?([<>=!~][^ ]*)?`)

// Every package that the image installs by name is known here, and no other.
func TestModulesAreThoseOfTheImage(t *testing.T) {
	lists, err := filepath.Glob("../full/*/wheels.in")
	if err != nil || len(lists) < 3 {
		t.Fatalf("lists %v, %v", lists, err)
	}
	installed := map[string]bool{}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			line, _, _ = strings.Cut(line, "#")
			for _, m := range requirement.FindAllStringSubmatch(line, -1) {
				installed[m[1]] = true
			}
		}
	}
	for name := range installed {
		if _, ok := modules[name]; !ok {
			t.Errorf("the modules of %s are not known", name)
		}
	}
	for name := range modules {
		if !installed[name] {
			t.Errorf("%s is not in the image", name)
		}
	}
	for name, want := range map[string]bool{"docx": true, "docx.shared": true, "cv2": true, "google.genai": true,
		"pandas": true, "python-docx": false, "documents": false, "": false} {
		if Module(name) != want {
			t.Errorf("module %q: %v", name, !want)
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
	if err := json.Unmarshal(data, &list); err != nil || len(list.Dependencies) != len(nodeModules) {
		t.Errorf("%v, %v", list, err)
	}
	for name := range list.Dependencies {
		if !NodeModule(name) || !NodeModule(name+"/lib/main") {
			t.Errorf("%s is not known", name)
		}
	}
}

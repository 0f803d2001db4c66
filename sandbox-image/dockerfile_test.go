package sandboximage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/proto"
	"berth/sandbox-image/recipe"
)

// TestDockerfile checks that the Dockerfile of each image installs everything, and that the files it copies are there.
func TestDockerfile(t *testing.T) {
	for _, name := range Names() {
		dir := filepath.Join(t.TempDir(), "new")
		if err := WriteDockerfile(name, dir); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "Dockerfile"))
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		def, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		wanted := def.Packages
		if def.From != nil {
			wanted = def.From.Packages
		}
		for _, a := range def.Additions {
			wanted = append(wanted, a.Packages...)
		}
		words := strings.Fields(text)
		for _, w := range wanted {
			if !slices.Contains(words, w) {
				t.Errorf("%s: package %s is not in the Dockerfile", name, w)
			}
		}
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "COPY" && !strings.HasPrefix(f[1], "--") {
				for _, source := range f[1 : len(f)-1] {
					if _, err := os.Stat(filepath.Join(dir, source)); err != nil {
						t.Errorf("%s: it copies %s: %v", name, source, err)
					}
				}
			}
		}
		for _, env := range def.Env {
			if !strings.Contains(text, "ENV "+env+"\n") {
				t.Errorf("%s: it does not set %s", name, env)
			}
		}
		checkSteps(t, def, dir)
		if err := WriteDockerfile(name, dir); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("into a directory that is not empty: %v", err)
		}
	}
	if err := WriteDockerfile("nonesuch", t.TempDir()); proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("of an unknown image: %v", err)
	}
}

// checkSteps compares the lists of pinned packages with the definition's.
func checkSteps(t *testing.T, def recipe.Definition, dir string) {
	t.Helper()
	root := def
	if def.From != nil {
		root = *def.From
	}
	for _, a := range append([]recipe.Layer{{Name: root.Name, Wheels: root.Wheels}}, def.Additions...) {
		if len(a.Wheels) == 0 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, a.Name, "wheels", recipe.WheelsFile))
		list, parseErr := recipe.ParseWheels(string(data))
		if err != nil || parseErr != nil || len(list) != len(a.Wheels) {
			t.Errorf("%s: %d wheels of %d, %v, %v", a.Name, len(list), len(a.Wheels), err, parseErr)
		}
	}
}

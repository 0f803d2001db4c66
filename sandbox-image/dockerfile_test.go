package sandboximage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/proto"
)

// TestDockerfile writes each image's: all that it installs is in it, and all that it copies lies beside it.
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
		wanted := def.packages
		if def.from != nil {
			wanted = def.from.packages
		}
		for _, a := range def.additions {
			wanted = append(wanted, a.packages...)
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
		for _, env := range def.env {
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
func checkSteps(t *testing.T, def definition, dir string) {
	t.Helper()
	for _, a := range def.additions {
		if len(a.wheels) == 0 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, a.name, "wheels", wheelsFile))
		list, parseErr := parseWheels(string(data))
		if err != nil || parseErr != nil || len(list) != len(a.wheels) {
			t.Errorf("%s: %d wheels of %d, %v, %v", a.name, len(list), len(a.wheels), err, parseErr)
		}
	}
}

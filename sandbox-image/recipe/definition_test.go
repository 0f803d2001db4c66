package recipe

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tiny is a definition of as little as a Debian system can be.
func tiny() fstest.MapFS {
	return fstest.MapFS{
		"tiny/packages.txt": {Data: []byte("# small\nbash dash # two\n\ncoreutils\n")},
		"tiny/env.txt":      {Data: []byte("# none\nLANG=C.UTF-8\nEMPTY=\n")},
		"tiny/dpkg.cfg":     {Data: []byte("path-exclude=/usr/share/doc/*\n")},
		"tiny/prepare.sh":   {Data: []byte(":\n")},
		"tiny/setup.sh":     {Data: []byte(":\n")},
		"tiny/files/etc/x":  {Data: []byte("x\n")},

		"tiny/files/etc/apt/sources.list.d/debian.sources": {Data: []byte("Types: deb\n")},
	}
}

func TestParse(t *testing.T) {
	d, err := Parse(tiny(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"bash", "dash", "coreutils"}; !slices.Equal(d.Packages, want) {
		t.Errorf("packages %q, want %q", d.Packages, want)
	}
	if want := []string{"LANG=C.UTF-8", "EMPTY="}; !slices.Equal(d.Env, want) {
		t.Errorf("env %q, want %q", d.Env, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"packages.txt", "bash -oDebug=1", `"-oDebug=1" is not a package name`},
		{"packages.txt", "bash\nBash", `"Bash" is not a package name`},
		{"packages.txt", "bash\ndash bash", "bash is listed twice"},
		{"wheels.txt", "numpy", `"numpy" is not NAME==VERSION with hashes`},
		{"env.txt", "LANG", `"LANG" is not NAME=value`},
		{"env.txt", "=x", `"=x" is not NAME=value`},
		{"env.txt", "A B=x", `"A B=x" is not NAME=value`},
	} {
		fsys := tiny()
		fsys["tiny/"+c.file] = &fstest.MapFile{Data: []byte(c.text)}
		if _, err := Parse(fsys, "tiny"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: error %v, want %q", c.file, c.text, err, c.want)
		}
	}
	for file := range tiny() {
		fsys := tiny()
		delete(fsys, file)
		if _, err := Parse(fsys, "tiny"); err == nil && file != "tiny/files/etc/x" {
			t.Errorf("a definition without %s parses", file)
		}
	}
}

// TestKey checks that a change of any file changes the key.
func TestKey(t *testing.T) {
	d, err := Parse(tiny(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{d.Key: "nothing"}
	for _, file := range slices.Sorted(maps.Keys(tiny())) {
		for _, text := range []string{"# more\n", "# less\n"} {
			fsys := tiny()
			fsys[file].Data = append(fsys[file].Data, text...)
			changed, err := Parse(fsys, "tiny")
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := seen[changed.Key]; ok {
				t.Errorf("changing %s gives the key of changing %s", file, other)
			}
			seen[changed.Key] = file
		}
	}
}

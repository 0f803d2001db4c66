package recipe

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Two hashes.
const (
	wheelSum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	otherSum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
)

// larger is a definition that adds to tiny one of everything.
func larger() fstest.MapFS {
	fsys := tiny()
	maps.Copy(fsys, fstest.MapFS{
		"larger/from.txt":             {Data: []byte("# below\ntiny\n")},
		"larger/env.txt":              {Data: []byte("MORE=1\n")},
		"larger/1-tools/packages.txt": {Data: []byte("jq\n")},
		"larger/1-tools/prepare.sh":   {Data: []byte(":\n")},
		"larger/1-tools/files/etc/y":  {Data: []byte("y\n")},
		"larger/2-python/wheels.txt": {Data: []byte("# made\nsix==1.17.0 \\\n    --hash=sha256:" + wheelSum +
			" \\\n    --hash=sha256:" + otherSum + "\n")},
		"larger/2-python/setup.sh":   {Data: []byte(":\n")},
		"larger/3-node/package.json": {Data: []byte(`{"dependencies":{"x":"1"}}`)},
		"larger/3-node/package-lock.json": {
			Data: []byte(`{"packages":{"":{},"node_modules/x":{"version":"1","integrity":"sha512-x"}}}`)},
	})
	return fsys
}

func TestParseExtension(t *testing.T) {
	d, err := Parse(larger(), "larger")
	if err != nil {
		t.Fatal(err)
	}
	if d.From == nil || d.From.Name != "tiny" || !slices.Equal(d.Env, []string{"LANG=C.UTF-8", "EMPTY=", "MORE=1"}) {
		t.Errorf("adds to %+v, environment %q", d.From, d.Env)
	}
	var names []string
	for _, a := range d.Additions {
		names = append(names, a.Name)
	}
	if !slices.Equal(names, []string{"tools", "python", "node"}) {
		t.Fatalf("layers %q", names)
	}
	tools, python, node := d.Additions[0], d.Additions[1], d.Additions[2]
	if !slices.Equal(tools.Packages, []string{"jq"}) || tools.Prepare == "" || tools.files() == nil ||
		python.files() != nil {
		t.Errorf("tools %+v", tools)
	}
	if want := (Wheel{Name: "six", pin: "six==1.17.0", Hashes: []string{wheelSum, otherSum}}); len(
		python.Wheels) != 1 ||
		python.Wheels[0].Line() != want.Line() {
		t.Errorf("wheels %+v", python.Wheels)
	}
	if !node.NPM || tools.NPM {
		t.Error("it is the third layer that has modules")
	}
}

func TestParseExtensionRefuses(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"from.txt", "", "names one other image"},
		{"from.txt", "tiny\nbase", "names one other image"},
		{"from.txt", "larger", "names one other image"},
		{"from.txt", "nonesuch", "nonesuch"},
		{"env.txt", "MORE", `"MORE" is not NAME=value`},
		{"1-tools/packages.txt", "-o", `1-tools: packages.txt: "-o" is not a package name`},
		{"2-python/wheels.txt", "six", `2-python: wheels.txt: "six" is not NAME==VERSION with hashes`},
		{"3-node/package-lock.json", `{"packages":{}}`, "pins nothing"},
		{"3-node/package-lock.json", `{"packages":{"":{},"node_modules/x":{}}}`, "node_modules/x has no integrity"},
		{"3-node/package-lock.json",
			`{"packages":{"":{},"node_modules/x":{"integrity":"x","resolved":"http://host/x"}}}`,
			"says where it was downloaded from"},
		{"3-node/package-lock.json", "", "package-lock.json"},
		{"4/setup.sh", ":", "named like 1-name"},
		{"5-empty/files/x", "", "nothing to install"},
	} {
		fsys := larger()
		fsys["larger/"+c.file] = &fstest.MapFile{Data: []byte(c.text)}
		if _, err := Parse(fsys, "larger"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: error %v, want %q", c.file, c.text, err, c.want)
		}
	}
	fsys := tiny()
	fsys["larger/from.txt"], fsys["larger/env.txt"] = &fstest.MapFile{Data: []byte("tiny")}, &fstest.MapFile{}
	if _, err := Parse(fsys, "larger"); err == nil || !strings.Contains(err.Error(), "adds nothing") {
		t.Errorf("an extension without layers: %v", err)
	}
}

// TestExtensionKey checks that a change of any file, also of the image below, changes the key.
func TestExtensionKey(t *testing.T) {
	d, err := Parse(larger(), "larger")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{d.Key: "nothing"}
	for _, file := range slices.Sorted(maps.Keys(larger())) {
		if strings.HasSuffix(file, ".json") {
			continue // white space is no change of theirs, but of the key; what follows would not parse
		}
		fsys := larger()
		fsys[file].Data = append(fsys[file].Data, "# more\n"...)
		changed, err := Parse(fsys, "larger")
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[changed.Key]; ok {
			t.Errorf("changing %s gives the key of changing %s", file, other)
		}
		seen[changed.Key] = file
	}
}

func TestParseWheels(t *testing.T) {
	hash := " --hash=sha256:" + wheelSum
	list, err := ParseWheels("a==1" + hash + "\nb.c-d==2.0.post1+x!3 ; platform_machine == \"x86_64\" \\\n   " + hash +
		hash + "\n")
	if err != nil || len(list) != 2 || list[1].Name != "b.c-d" || list[1].only != "x86_64" || len(list[1].Hashes) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, bad := range []string{
		"a", "a==1", "a>=1" + hash, "A==1" + hash, "--index-url=x", "a==1 --hash=md5:x", "a==1 --hash=sha256:" +
			wheelSum[1:], "a==1" + hash + " -r x",
		"a @ http://host/a.whl" + hash, "a==1" + hash + "\na==2" + hash, "a==1 ; python_version > \"3\"" + hash,
	} {
		if list, err := ParseWheels(bad); err == nil {
			t.Errorf("parseWheels(%q) gives %+v", bad, list)
		}
	}
	if got := ForHost([]Wheel{{Name: "a"}, {Name: "b", only: Machine()}, {Name: "c", only: "vax"}}); len(got) != 2 ||
		got[1].Name != "b" {
		t.Errorf("of this machine: %+v", got)
	}
}

func FuzzParseWheels(f *testing.F) {
	f.Add("a==1 \\\n --hash=sha256:" + wheelSum)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseWheels(text)
		if err != nil {
			return
		}
		for _, w := range list {
			if w.Name == "" || len(w.Hashes) == 0 || strings.HasPrefix(w.Line(), "-") ||
				strings.Count(w.Line(), "\n") != 1 {
				t.Errorf("%q parses to %+v", text, w)
			}
		}
	})
}

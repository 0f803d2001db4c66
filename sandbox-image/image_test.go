package sandboximage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"

	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/debian"
	"berth/sandbox-image/layer"
	"berth/sandbox-image/ociarchive"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestBase builds the base image, or takes it from the cache, and checks its programs and files.
func TestBase(t *testing.T) {
	r := base(t)
	t.Logf("%d packages, archive %d bytes, layers %+v", r.Packages, r.Size, r.Layers)
	image, layer := checkArchive(t, r)
	root := extract(t, layer)
	t.Run("Config", func(t *testing.T) { checkConfig(t, image) })
	t.Run("Clean", func(t *testing.T) { checkClean(t, root) })
	t.Run("Repacks", func(t *testing.T) { checkRepacks(t, root, r, image) })
	t.Run("Contents", func(t *testing.T) { checkContents(t, root, image) }) // changes the tree
	t.Run("Reused", func(t *testing.T) { checkReused(t, r) })
	t.Run("Refresh", func(t *testing.T) { checkRefresh(t, r) })
}

// checkArchive reads the archive as an importer does, checking every digest, and returns the image's
// config and its layer.
func checkArchive(t *testing.T, r Result) (v1.Image, []byte) {
	t.Helper()
	files := readArchiveFiles(t, r.Path)
	get := func(d v1.Descriptor) []byte {
		t.Helper()
		data := files[ociarchive.BlobName(d.Digest)]
		if int64(len(data)) != d.Size || digest.FromBytes(data) != d.Digest {
			t.Fatalf("blob %s: %d bytes of digest %s", d.Digest, len(data), digest.FromBytes(data))
		}
		return data
	}
	var layout v1.ImageLayout
	var index v1.Index
	var manifest v1.Manifest
	var image v1.Image
	decode(t, files["oci-layout"], &layout)
	decode(t, files["index.json"], &index)
	if layout.Version != "1.0.0" || len(index.Manifests) != 1 {
		t.Fatalf("layout %+v, index %+v", layout, index)
	}
	m := index.Manifests[0]
	if m.Annotations["org.opencontainers.image.ref.name"] != "base" ||
		m.Annotations["io.containerd.image.name"] != r.Ref || r.Ref == "" {
		t.Errorf("names of the image: %v", m.Annotations)
	}
	if m.Digest.String() != r.Digest {
		t.Errorf("manifest %s, but the result says %s", m.Digest, r.Digest)
	}
	decode(t, get(m), &manifest)
	decode(t, get(manifest.Config), &image)
	if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.oci.image.layer.v1.tar+zstd" {
		t.Fatalf("layers %+v", manifest.Layers)
	}
	layer := decompress(t, get(manifest.Layers[0]))
	if len(image.RootFS.DiffIDs) != 1 || digest.FromBytes(layer) != image.RootFS.DiffIDs[0] ||
		int64(len(layer)) != r.Layers[0].Unpacked {
		t.Errorf("layer unpacks to %s, %d bytes; config says %v, result %+v", digest.FromBytes(layer), len(layer),
			image.RootFS.DiffIDs, r.Layers)
	}
	return image, layer
}

func readArchiveFiles(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%T: %v", v, err)
	}
}

func decompress(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// extract unpacks the layer with the system's tar, as somebody else's program.
func extract(t *testing.T, layer []byte) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tar", "-xp", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-C", root)
	cmd.Stdin = bytes.NewReader(layer)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return root
}

func checkConfig(t *testing.T, image v1.Image) {
	c := image.Config
	if c.User != "1000:1000" || c.WorkingDir != "/workspace" || image.OS != "linux" {
		t.Errorf("user %q, directory %q, OS %q", c.User, c.WorkingDir, image.OS)
	}
	for _, want := range []string{"LANG=C.UTF-8", "TZ=UTC", "MPLBACKEND=Agg", "PYTHONDONTWRITEBYTECODE=1"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("environment %q lacks %s", c.Env, want)
		}
	}
}

// runIn runs a shell script inside root as uid 1000, with the image's environment.
func runIn(root string, image v1.Image, script string) (string, error) {
	cmd := exec.Command("/bin/bash", "-c", script)
	cmd.Dir = "/workspace"
	cmd.Env = append(slices.Clone(image.Config.Env), "HOME=/home/user")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// checkContents tries what issue and documents promise, as the user of execs.
func checkContents(t *testing.T, root string, image v1.Image) {
	for name, minor := range map[string]int{"null": 3, "urandom": 9} {
		path := filepath.Join(root, "dev", name)
		if err := errors.Join(syscall.Mknod(path, syscall.S_IFCHR, 1<<8|minor), os.Chmod(path, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	checkFontList(t, root, image)
	for _, c := range []struct{ name, script, want string }{
		{"user", "id -un; id -u; echo ~; pwd; touch /workspace/x && echo ok", "user\n1000\n/home/user\n/workspace\nok"},
		{"python", "python -c 'import sys; print(sys.version_info[:2])'", "(3, 11)"},
		{"libraries", "python3 -c 'import numpy, pandas, matplotlib, openpyxl, PIL, requests; " +
			"print(numpy.arange(4).sum())'", "6"},
		{"started with little",
			`python3 -c 'import sys; print(*sorted({"collections", "contextlib", "functools", "importlib.util", "re"} & set(sys.modules)))'`, ""},
		{"3D charts", `python3 -c 'import matplotlib.pyplot as p; print(p.figure().add_subplot(projection="3d").name)'`,
			"3d"},
		{"newer mpl_toolkits", `mkdir -p n/mpl_toolkits/mplot3d; echo 'newer = True' >n/mpl_toolkits/mplot3d/__init__.py
PYTHONPATH=n python3 -c 'import mpl_toolkits.mplot3d as m, mpl_toolkits.axisartist; print(m.newer)'`, "True"},
		{"compiled", `python3 -c 'import os, numpy, pandas, matplotlib, openpyxl, PIL, requests, sympy
for m in numpy, pandas, matplotlib, openpyxl, PIL, requests, sympy: assert os.path.exists(m.__cached__), m
print("ok")'`, "ok"},
		{
			"pip",
			"pip --version | cut -d' ' -f1; python3 -m venv /tmp/venv && /tmp/venv/bin/pip --version | cut -d' ' -f1",
			"pip\npip"},
		{"excel", "python3 -c 'import pandas as p; p.DataFrame({\"a\":[1,2]}).to_excel(\"t.xlsx\"); " +
			"print(p.read_excel(\"t.xlsx\").a.sum())'", "3"},
		{
			"chart",
			`python3 -c 'import matplotlib.pyplot as p; p.plot([1, 2]); p.title("ä"); p.savefig("c.png")' && file -b c.png | cut -d, -f1`, "PNG image data"},
		{"charts in all scripts", `python3 -W error -c 'import matplotlib.pyplot as p
p.rcParams["font.family"] = "serif"
p.title("天气 龍 こんにちは 안녕하세요 नमस्ते สวัสดี বাংলা தமிழ் తెలుగు አማርኛ العربية 😀🚀🥲 ✔℃", weight="bold"); p.savefig("s.png"); print("drawn")'`,
			"drawn"},
		{"matplotlib is compiled", `python3 -v -c 'import matplotlib.font_manager' 2>&1 | grep -c "code object from .*/matplotlib/font_manager.py" || :`,
			"0"},
		{"read-only home", "HOME=/proc python3 -c 'import matplotlib.pyplot as p; p.plot([1]); " +
			"p.savefig(\"d.png\"); print(1)' 2>/dev/null", "1"},
		{"node", `node -e 'console.log([1,2].map(x => x * 2).join(), process.versions.node.split(".")[0])'`, "2,4 24"},
		{"node by its other name", "nodejs -p 6*7; for c in npm npx; do $c --version | cut -d. -f1; done", "42\n11\n11"},
		{"npm without network", `mkdir -p app/one; cd app; echo '{"name":"one","version":"1.0.0"}' >one/package.json
npm init -y >/dev/null && npm install --offline --silent ./one && node -p 'require("one/package").version'
npm root --global`, "1.0.0\n/usr/local/lib/node_modules"},
		{"types", "echo 'const x: number = 6; console.log(x * 7)' >x.ts; node x.ts", "42"},
		{"requirements", "python3 -m pip check", "No broken requirements found."},
		{"readers", `python3 - <<'E'
` + readers + `E`, "a b c 7.5 PDF"},
		{"plotly and polars", `python3 -c 'import plotly.express as e, polars as p
f = p.DataFrame({"a": [1, 2, 2], "b": [3, 4, 5]})
print(f.group_by("a").agg(p.col("b").sum()).sort("a")["b"].to_list(), "plotly" in e.line(f, x="a", y="b").to_html())'`,
			"[3, 9] True"},
		{"git", "git init -q r && cd r && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git " +
			"log --format=%s", "x"},
		{"jq", `echo '{"a":[1,2]}' | jq -c .a`, "[1,2]"},
		{"search", "mkdir s; echo needle >s/hay; rg -l needle s; fd hay s; fdfind hay s", "s/hay\ns/hay\ns/hay"},
		{"sqlite3", "sqlite3 :memory: 'select 6*7'", "42"},
		{"bc", "echo '2^70' | bc", "1180591620717411303424"},
		{"zip", "echo a >a; zip -q a.zip a; unzip -p a.zip; 7z a -bso0 a.7z a; 7z e -so a.7z", "a\na"},
		{"archives", "for z in gzip bzip2 xz zstd; do tar -cf a.tar --use-compress-program=$z a && tar -xOf a.tar " +
			"--use-compress-program=$z; done", "a\na\na\na"},
		{"locale", "python3 -c 'print(\"\u00e4\")'; locale charmap", "ä\nUTF-8"},
		{"locale in one file", "localedef --list-archive", "C.utf8"},
		{"commands", "for c in curl wget less ps find diff patch gawk sed grep rsync tree vi nano make openssl xxd sudo; " +
			"do command -v $c >/dev/null || echo $c; done", ""},
	} {
		if got, err := runIn(root, image, c.script); err != nil || got != c.want {
			t.Errorf("%s: %q, error %v; want %q", c.name, got, err, c.want)
		}
	}
}

// readers writes a file of each kind, and reads it with the module that is for it. The old Excel file is a stream of
// three records of its first version: nothing in the image writes such files.
const readers = `import docx, io, pdfplumber, pptx, pypdf, struct, xlrd, matplotlib.pyplot as plt
d = docx.Document(); d.add_paragraph("a"); d.save("a.docx")
p = pptx.Presentation(); p.slides.add_slide(p.slide_layouts[0]).shapes.title.text = "b"; p.save("b.pptx")
cell = struct.pack("<HH3sd", 0, 0, bytes(3), 7.5)
open("c.xls", "wb").write(struct.pack("<HHHH", 9, 4, 2, 16) + struct.pack("<HH", 3, len(cell)) + cell +
    struct.pack("<HH", 10, 0))
plt.rcParams["pdf.fonttype"] = 42
plt.figure().text(.5, .5, "PDF"); plt.savefig("d.pdf")
assert pdfplumber.open("d.pdf").pages[0].extract_text() == "PDF"
print(docx.Document("a.docx").paragraphs[0].text, pptx.Presentation("b.pptx").slides[0].shapes.title.text, "c",
    xlrd.open_workbook("c.xls").sheet_by_index(0).cell_value(0, 0), pypdf.PdfReader("d.pdf").pages[0].extract_text())
`

// checkFontList has matplotlib use the font list that is in the image, rather than make one.
func checkFontList(t *testing.T, root string, image v1.Image) {
	t.Helper()
	pattern := filepath.Join(root, "home/user/.cache/matplotlib/*")
	if found, _ := filepath.Glob(pattern); len(found) != 1 {
		t.Fatalf("font lists %v; want one", found)
	}
	if out, err := runIn(root, image, "python3 -c 'import matplotlib.pyplot'"); err != nil || out != "" {
		t.Errorf("importing matplotlib: %q, %v", out, err)
	}
	found, _ := filepath.Glob(pattern)
	if len(found) != 1 {
		t.Fatalf("after the import, font lists %v", found)
	}
	if info, err := os.Stat(found[0]); err != nil || info.ModTime().After(*image.Created) {
		t.Errorf("matplotlib made a new font list (%v)", err)
	}
}

// checkClean looks for what the building host could have left in the image.
func checkClean(t *testing.T, root string) {
	for _, name := range []string{"etc/resolv.conf", "etc/machine-id", "etc/hostname"} {
		if data, err := os.ReadFile(filepath.Join(root, name)); err != nil || len(data) > 0 {
			t.Errorf("%s: %q, %v; want an empty file", name, data, err)
		}
	}
	for _, name := range []string{"etc/apt/sources.list", "usr/bin/py3compile.distrib", "etc/shadow-"} {
		if _, err := os.Lstat(filepath.Join(root, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is in the image (%v)", name, err)
		}
	}
	for _, pattern := range []string{"var/cache/apt/archives/*.deb", "var/lib/apt/lists/*Packages*",
		"usr/share/man/man1/*", "var/log/*.log", "run/*"} {
		if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) > 0 {
			t.Errorf("%s: %d files", pattern, len(found))
		}
	}
	stub, err := os.ReadFile(filepath.Join(root, "usr/bin/py3compile"))
	if err != nil || len(stub) < 1000 {
		t.Errorf("py3compile is still the one that does nothing (%v)", err)
	}
	want, err := definitions.ReadFile("base/files/" + debian.Sources)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, debian.Sources)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("apt sources of the image: %q, %v", got, err)
	}
	checkNothingOf(t, root, hostWords(t))
}

// comment is one in a file of apt's.
var comment = regexp.MustCompile(`(?m)^\s*(#|//).*$`)

// address is a URL's scheme and host.
var address = regexp.MustCompile(`https?://[^/\s";]+`)

// hostWords are strings of this machine's configuration that no image may hold.
func hostWords(t *testing.T) []string {
	t.Helper()
	words := []string{DefaultCacheDir, "trusted=yes"}
	err := filepath.WalkDir("/etc/apt", func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		for _, word := range address.FindAllString(comment.ReplaceAllString(string(data), ""), -1) {
			if !strings.HasSuffix(word, ".debian.org") {
				words = append(words, word)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if name, err := os.Hostname(); err == nil && len(name) > 6 {
		words = append(words, name)
	}
	return words
}

// checkNothingOf reads the configuration and state of the image for words.
func checkNothingOf(t *testing.T, root string, words []string) {
	t.Helper()
	read := 0
	for _, dir := range []string{"etc", "var", "root", "home"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(p string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(p)
			read++
			for _, word := range words {
				if bytes.Contains(data, []byte(word)) {
					t.Errorf("%s holds %q of this machine", strings.TrimPrefix(p, root), word)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 300 {
		t.Errorf("only %d files to look at", read)
	}
}

// checkRepacks packs the unpacked tree again: the same bytes must come out, so nothing was lost on
// the way, and nothing depends on when and where it is packed.
func checkRepacks(t *testing.T, root string, r Result, image v1.Image) {
	again, err := layer.Pack(t.Context(), &buildenv.Env{}, root, filepath.Join(t.TempDir(), "layer"), *image.Created,
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if again.DiffID != image.RootFS.DiffIDs[0] || again.Digest.String() != r.Layers[0].Digest {
		t.Errorf("packed again: %s (%s), was %s (%s)", again.Digest, again.DiffID, r.Layers[0].Digest,
			image.RootFS.DiffIDs[0])
	}
}

// checkReused builds once more, to another place, for which no tool may be needed.
func checkReused(t *testing.T, r Result) {
	out := filepath.Join(t.TempDir(), "out.tar")
	for range 2 { // from the cache, then from out itself
		again, err := Build(t.Context(), Options{Name: "base", Out: out, Progress: func(s buildenv.Step) {
			t.Errorf("a build that has nothing to do does %+v", s)
		}})
		if err != nil || !again.Reused || again.Digest != r.Digest || again.Path != out {
			t.Fatalf("second build: %+v, %v", again, err)
		}
	}
	info, err := os.Stat(out)
	if err != nil || info.Size() != r.Size || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("the copy: %v, %v", info, err)
	}
}

// checkRefresh asks the mirrors: the archive is made anew if they have something new, and only then.
func checkRefresh(t *testing.T, r Result) {
	again, err := Build(t.Context(), Options{Name: "base", Refresh: true})
	if err != nil || again.Reused != (again.Digest == r.Digest) {
		t.Errorf("refreshed: %+v, %v; was %s", again, err, r.Digest)
	}
}

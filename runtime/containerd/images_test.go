package containerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/klauspost/compress/zstd"

	"berth/proto"
	"berth/runtime/images"
	"berth/session"
)

func TestImageNames(t *testing.T) {
	for ref, want := range map[string]string{"base": "base", "base:latest": "base", "debian:12": "debian:12",
		"example.org/a/b:c": "example.org/a/b:c"} {
		full, err := images.FullName("test", ref)
		if err != nil || images.ShortName(full) != want {
			t.Errorf("%s became %q and %q, %v", ref, full, images.ShortName(full), err)
		}
	}
	for _, ref := range []string{"", "Base", "a b", "../x", "sha256:12", "a:b:c", "x\x00", "-",
		strings.Repeat("a", 300)} {
		if _, err := images.FullName("test", ref); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%q is a name: %v", ref, err)
		}
	}
}

func FuzzImageName(f *testing.F) {
	f.Add("debian:12")
	f.Add("sha256:0123")
	f.Fuzz(func(t *testing.T, ref string) {
		full, err := images.FullName("fuzz", ref)
		if err != nil {
			if proto.CodeOf(err) != proto.InvalidArgument {
				t.Errorf("%q: %v", ref, err)
			}
			return
		}
		if again, err := images.FullName("fuzz", full); err != nil || again != full {
			t.Errorf("%q is %q, and that is %q (%v)", ref, full, again, err)
		}
	})
}

// dockerArchive returns an archive in the older form of "docker save".
func dockerArchive(t *testing.T, tag string) []byte {
	layer := tarOf(t, tarFile{name: "etc/", kind: tar.TypeDir, mode: 0o755})
	conf := `{"architecture":"` + runtime.GOARCH + `","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:` +
		sha(layer) + `"]}}`
	return tarOf(t,
		tarFile{name: "layer/layer.tar", body: string(layer), mode: 0o644},
		tarFile{name: "conf.json", body: conf, mode: 0o644},
		tarFile{name: "manifest.json",
			body: `[{"Config":"conf.json","RepoTags":["` + tag + `"],"Layers":["layer/layer.tar"]}]`, mode: 0o644},
	)
}

func compressed(t *testing.T, plain []byte, kind string) []byte {
	var buf bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&buf)
	if kind == "zstd" {
		var err error
		if w, err = zstd.NewWriter(&buf); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestImport(t *testing.T) {
	r := openTest(t)
	im := r.Images()
	oci := ociArchive(t)
	for name, archive := range map[string][]byte{
		"named:1": oci, "docked:2": dockerArchive(t, "docked:2"),
		// what "berth image build base --output" writes
		"base": dockerArchive(t, "localhost/berth/base:latest"),
	} {
		var stages []string
		img, err := im.Import(t.Context(), "", bytes.NewReader(archive), func(p session.ImageProgress) {
			stages = append(stages, p.Stage)
		})
		if err != nil || img.Name != name || !strings.HasPrefix(img.Digest, "sha256:") || img.SizeBytes == 0 ||
			img.Platform != "linux/"+runtime.GOARCH {
			t.Fatalf("imported %+v, %v", img, err)
		}
		if got := strings.Join(stages, " "); got != "importing unpacking done" {
			t.Errorf("stages: %s", got)
		}
	}
	for _, kind := range []string{"gzip", "zstd"} {
		if img, err := im.Import(t.Context(), kind, bytes.NewReader(compressed(t, oci, kind)), nil); err != nil ||
			img.Name != kind {
			t.Errorf("%s: %+v, %v", kind, img, err)
		}
	}
	list, err := im.List(t.Context())
	if err != nil || len(list) != 5 || list[0].Name != "base" || list[1].Name != "docked:2" {
		t.Errorf("listed %+v, %v", list, err)
	}
	if err := im.Remove(t.Context(), list[0].Digest); proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("removing a digest, which containers may have: %v", err)
	}
	if _, err := im.Resolve(t.Context(), list[0].Digest); err != nil {
		t.Error(err)
	}
}

// TestNameMoves checks that a name stands only for the image that it was given to last.
func TestNameMoves(t *testing.T) {
	r := openTest(t)
	im := r.Images()
	resolve := func() session.Image {
		t.Helper()
		img, err := im.Resolve(t.Context(), "moving")
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	var last session.Image
	for _, archive := range [][]byte{ociArchive(t), dockerArchive(t, "docked:2"), ociArchive(t)} {
		img, err := im.Import(t.Context(), "moving", bytes.NewReader(archive), nil)
		if err != nil {
			t.Fatal(err)
		}
		if img.Digest == last.Digest {
			t.Fatal("both archives are one image")
		}
		for range 2 {
			if got := resolve(); got != img {
				t.Errorf("after the import of %+v there is %+v", img, got)
			}
		}
		last = img
	}
	if err := im.Remove(t.Context(), "moving"); err != nil {
		t.Fatal(err)
	}
	if got, err := im.Resolve(t.Context(), "moving"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("resolving what was removed: %+v, %v", got, err)
	}
	if _, err := im.Resolve(t.Context(), last.Digest); err != nil {
		t.Fatal(err)
	}
	if gone, err := im.Sweep(t.Context(), nil); err != nil || !slices.Contains(gone, last.Digest) {
		t.Fatalf("swept %v, %v", gone, err)
	}
	if got, err := im.Resolve(t.Context(), last.Digest); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("resolving what was swept: %+v, %v", got, err)
	}
}

// TestImagePins checks that a digest stays startable when its name is gone or has moved, until a sweep finds that no
// session needs it.
func TestImagePins(t *testing.T) {
	r := openTest(t)
	im := r.Images()
	id, spec := startTest(t, r, proto.ClassRunc)
	if err := im.Remove(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := im.Resolve(t.Context(), "test"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("resolving what was removed: %v", err)
	}
	if err := im.Remove(t.Context(), "test"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("removing it again: %v", err)
	}
	if gone, err := im.Sweep(t.Context(), nil); err != nil || len(gone) > 0 {
		t.Errorf("swept what a sandbox uses: %v, %v", gone, err)
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if gone, err := im.Sweep(t.Context(), []string{spec.Image}); err != nil || len(gone) > 0 {
		t.Errorf("swept what is kept: %v, %v", gone, err)
	}
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatalf("starting from a digest without a name: %v", err)
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if gone, err := im.Sweep(t.Context(), nil); err != nil || len(gone) != 1 {
		t.Errorf("swept %v, %v", gone, err)
	}
	if left := entries(t, filepath.Join(r.cfg.Dir, "ctr", "io.containerd.snapshotter.v1.overlayfs", "snapshots")); len(
		left) > 0 {
		t.Errorf("layers left on disk: %v", left)
	}
	if err := r.Start(t.Context(), id, spec); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("starting from what is gone: %v", err)
	}
}

// TestHostileArchives checks that hostile archives cause errors and nothing else.
func TestHostileArchives(t *testing.T) {
	r := openTest(t)
	outside := filepath.Join(t.TempDir(), "outside")
	good := ociArchive(t)
	evil := func(files ...tarFile) []byte { return ociArchiveOf(t, runtime.GOARCH, tarOf(t, files...), nil) }
	climb := strings.Repeat("../", 30) + outside
	cases := map[string]struct {
		archive []byte
		code    proto.Code // empty: may succeed if nothing is written outside
	}{
		"empty":     {nil, proto.InvalidArgument},
		"noise":     {bytes.Repeat([]byte("noise"), 1000), proto.InvalidArgument},
		"cut short": {good[:len(good)/2], proto.InvalidArgument},
		"bad gzip":  {append([]byte{0x1f, 0x8b, 8, 0}, good[:100]...), proto.InvalidArgument},
		"no image":  {tarOf(t, tarFile{name: "x", body: "y"}), proto.InvalidArgument},
		"bad index": {tarOf(t, tarFile{name: "oci-layout", body: `{"imageLayoutVersion":"1.0.0"}`},
			tarFile{name: "index.json", body: `{"manifests":[{"digest":"sha256:../../etc"}]}`}), ""},
		"missing blobs": {tarOf(t, tarFile{name: "manifest.json", body: `[{"Config":"c","Layers":["l"]}]`}),
			proto.InvalidArgument},
		"changed blob":  {bytes.Replace(good, []byte("secret"), []byte("SECRET"), 1), proto.InvalidArgument},
		"other machine": {ociArchiveOf(t, "s390x", tarOf(t), nil), proto.Unsupported},
		"climbs":        {evil(tarFile{name: climb, body: "x", mode: 0o644}), ""},
		"absolute":      {evil(tarFile{name: outside, body: "x", mode: 0o644}), ""},
		"through symlink": {evil(tarFile{name: "out", kind: tar.TypeSymlink, link: filepath.Dir(outside)},
			tarFile{name: "out/outside", body: "x"}), ""},
		"hard link": {evil(tarFile{name: "out", kind: tar.TypeLink, link: "/etc/shadow"}), proto.InvalidArgument},
	}
	for name, c := range cases {
		_, err := r.Images().Import(t.Context(), "evil", bytes.NewReader(c.archive), nil)
		if c.code != "" && proto.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if err != nil && proto.CodeOf(err) == proto.Internal {
			t.Errorf("%s is called our fault: %v", name, err)
		}
		if _, err := os.Lstat(outside); err == nil {
			t.Fatalf("%s wrote outside", name)
		}
	}
}

// TestHostileWorkspaceLink checks that an image with /workspace as a symlink, or a file as /proc, gets real
// directories, and that nothing is made where the links point.
func TestHostileWorkspaceLink(t *testing.T) {
	r := openTest(t)
	layer := tarOf(t, tarFile{name: "workspace", kind: tar.TypeSymlink, link: "/etc"},
		tarFile{name: ".berth", kind: tar.TypeSymlink, link: "/proc"},
		tarFile{name: "etc/", kind: tar.TypeDir, mode: 0o755}, tarFile{name: "tmp", kind: tar.TypeSymlink,
			link: "/etc"},
		tarFile{name: "proc", body: "x"}, tarFile{name: "sys", kind: tar.TypeSymlink, link: "proc"},
		tarFile{name: "dev", kind: tar.TypeSymlink, link: "/etc"})
	img, err := r.Images().Import(t.Context(), "linked", bytes.NewReader(ociArchiveOf(t, runtime.GOARCH, layer, nil)),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	id := newID(proto.ContainerPrefix)
	err = r.Start(t.Context(), id, session.Spec{Image: img.Digest, Class: proto.ClassRunc, Workspace: newID(
		proto.WorkspacePrefix), Layer: newID(proto.LayerPrefix),
		Limits: testLimits})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, r, id, guestRequest{Op: "stat", Path: "/workspace"}); got.Text != "1000:1000 40755" {
		t.Errorf("/workspace is %v", got)
	}
}

func TestImportCanceled(t *testing.T) {
	r := openTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Images().Import(ctx, "x", bytes.NewReader(ociArchive(t)), nil); proto.CodeOf(err) != proto.Canceled {
		t.Errorf("importing for nobody: %v", err)
	}
}

// TestPull pulls from a small real registry on loopback.
func TestPull(t *testing.T) {
	r := openTest(t)
	blobs := make(map[string][]byte)
	var index []byte
	for _, f := range filesOf(t, ociArchive(t)) {
		if f.name == "index.json" {
			index = []byte(f.body)
		}
		blobs["sha256:"+sha([]byte(f.body))] = []byte(f.body)
	}
	srv := httptest.NewServer(serveImage(blobs, index))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	img, err := r.Images().Pull(t.Context(), host+"/team/app:1", func(session.ImageProgress) {})
	if err != nil || img.Name != host+"/team/app:1" {
		t.Fatalf("pulled %+v, %v", img, err)
	}
	if _, err := r.Images().Resolve(t.Context(), img.Digest); err != nil {
		t.Errorf("resolving its digest: %v", err)
	}
	if _, err := r.Images().Pull(t.Context(), host+"/team/none:1", nil); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("pulling what is not there: %v", err)
	}
	srv.Close()
	if _, err := r.Images().Pull(t.Context(), host+"/team/app:1", nil); proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("pulling from nobody: %v", err)
	}
}

// filesOf returns the files of an archive.
func filesOf(t *testing.T, archive []byte) (files []tarFile) {
	t.Helper()
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, tarFile{name: hdr.Name, body: string(body), mode: hdr.Mode})
	}
}

// serveImage serves one image as team/app.
func serveImage(blobs map[string][]byte, index []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, ref, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/team/app/"), "/")
		body, ok := blobs[ref]
		kind := "application/vnd.oci.image.manifest.v1+json"
		if ref == "1" {
			body, ok, kind = index, true, "application/vnd.oci.image.index.v1+json"
			w.Header().Set("Docker-Content-Digest", "sha256:"+sha(index))
		}
		if !ok || !strings.HasPrefix(req.URL.Path, "/v2/team/app/") {
			http.NotFound(w, req)
			return
		}
		w.Header().Set("Content-Type", kind)
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(body))
	})
}

// TestImageReserve checks that an image that would leave too little of the disk is given up. The error must help the
// user, and nothing may be left.
func TestImageReserve(t *testing.T) {
	r := openTest(t)
	whole := ociArchive(t)
	r.images.Reserve = 1 << 62 // as if the disk were almost full
	in, out := io.Pipe()
	go func() { // the archive comes no faster than the disk is checked
		_, _ = out.Write(whole[:len(whole)/2])
		time.Sleep(3 * images.ReserveEvery)
		_, err := out.Write(whole[len(whole)/2:])
		out.CloseWithError(err)
	}()
	_, err := r.Images().Import(t.Context(), "reserve", in, nil)
	if code := proto.CodeOf(err); code != proto.QuotaExceeded || !strings.Contains(err.Error(), "disk") {
		t.Errorf("an image that does not fit: %q %v", code, err)
	}
	in.Close()
	r.images.Reserve = 0
	if _, err := r.Images().Import(t.Context(), "reserve", bytes.NewReader(whole), nil); err != nil {
		t.Errorf("once there is room: %v", err)
	}
}

// TestUnusableImages checks that an image of which no container can be made is refused at import.
func TestUnusableImages(t *testing.T) {
	r := openTest(t)
	for what, archive := range map[string][]byte{
		"a large variable": ociArchive(t, "BIG="+strings.Repeat("A", images.MaxVariable)),
		"a large environment": ociArchive(t, slices.Repeat([]string{"A=" + strings.Repeat("A", 1000)},
			images.MaxEnvironment/1000)...),
	} {
		_, err := r.Images().Import(t.Context(), "unusable", bytes.NewReader(archive), nil)
		if code := proto.CodeOf(err); code != proto.InvalidArgument || !strings.Contains(err.Error(), "environment") {
			t.Errorf("%s: %q %v", what, code, err)
		}
	}
	if all, err := r.Images().List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("left: %v %v", all, err)
	}
}

// TestArchiveNamesADigest checks that an archive cannot name its image by the digest of another, to which containers
// are pinned.
func TestArchiveNamesADigest(t *testing.T) {
	r := openTest(t)
	pinned := testImage(t, r)
	layer := tarOf(t, tarFile{name: "etc/", kind: tar.TypeDir, mode: 0o755}, tarFile{name: "etc/evil", body: "evil",
		mode: 0o644})
	files := filesOf(t, ociArchiveOf(t, runtime.GOARCH, layer, nil))
	for i, f := range files {
		if f.name == "index.json" {
			files[i].body = strings.Replace(f.body, "named:1", pinned, 1)
		}
	}
	if img, err := r.Images().Import(t.Context(), "", bytes.NewReader(tarOf(t, files...)), nil); proto.CodeOf(
		err) != proto.InvalidArgument {
		t.Errorf("imported %+v, %v", img, err)
	}
	for _, ref := range []string{pinned, "test"} {
		if img, err := r.Images().Resolve(t.Context(), ref); err != nil || img.Digest != pinned {
			t.Errorf("%s is %+v, %v", ref, img, err)
		}
	}
}

const indexType, manifestType = "application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json"

// An entry is one descriptor of an index.
type entry struct {
	Type        string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Data        []byte            `json:"data,omitempty"`
}

func entryOf(kind, body, name string) entry {
	e := entry{Type: kind, Digest: "sha256:" + sha([]byte(body)), Size: len(body)}
	if name != "" {
		e.Annotations = map[string]string{"org.opencontainers.image.ref.name": name}
	}
	return e
}

// indexOf returns an index with these entries.
func indexOf(t *testing.T, entries ...entry) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": entries})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withIndex returns the OCI archive of the tests with another index, and with the further blobs that this index
// names.
func withIndex(t *testing.T, index string, more ...string) []byte {
	t.Helper()
	files := filesOf(t, ociArchive(t))
	for i := range files {
		if files[i].name == "index.json" {
			files[i].body = index
		}
	}
	for _, body := range more {
		files = append(files, tarFile{name: "blobs/sha256/" + sha([]byte(body)), body: body, mode: 0o644})
	}
	return tarOf(t, files...)
}

// testIndex returns the index of the tests' OCI archive.
func testIndex(t *testing.T) (index string) {
	t.Helper()
	for _, f := range filesOf(t, ociArchive(t)) {
		if f.name == "index.json" {
			index = f.body
		}
	}
	return index
}

// testManifest returns the manifest that testIndex names.
func testManifest(t *testing.T) (manifest string) {
	t.Helper()
	for _, f := range filesOf(t, ociArchive(t)) {
		if strings.Contains(f.body, manifestType) && f.name != "index.json" {
			manifest = f.body
		}
	}
	return manifest
}

// TestIndexesOfIndexes checks that a blob that an index names many times is read once, and that too many names are an
// error.
func TestIndexesOfIndexes(t *testing.T) {
	r := openTest(t)
	bomb := make([]string, images.MaxNesting)
	bomb[0] = indexOf(t)
	for i := 1; i < len(bomb); i++ {
		bomb[i] = indexOf(t, slices.Repeat([]entry{entryOf(indexType, bomb[i-1], "")}, 300)...)
	}
	last := len(bomb) - 1
	top := indexOf(t, slices.Repeat([]entry{entryOf(indexType, bomb[last], "")}, 300)...)
	var crowd []entry
	for i := range images.MaxDescriptors + 1 {
		crowd = append(crowd, entryOf(manifestType, fmt.Sprint(i), ""))
	}
	inner := strings.Replace(testIndex(t), "annotations", "nothing", 1) // the image without its name
	for what, c := range map[string]struct {
		archive []byte
		name    string
		code    proto.Code
	}{
		"the same over and over": {withIndex(t, top, bomb...), "", proto.Unsupported},
		"too many":               {withIndex(t, indexOf(t, crowd...)), "", proto.InvalidArgument},
		"the first with a name": {withIndex(t, indexOf(t, entryOf(indexType, inner, ""), entryOf(indexType, inner,
			"late:1"),
			entryOf(indexType, inner, "later:2")), inner), "late:1", ""},
	} {
		done := make(chan error, 1)
		go func() {
			img, err := r.Images().Import(t.Context(), "", bytes.NewReader(c.archive), nil)
			if err == nil && img.Name != c.name {
				err = fmt.Errorf("imported %+v", img)
			}
			done <- err
		}()
		select {
		case err := <-done:
			if proto.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %q", what, err, c.code)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: no end of it", what)
		}
	}
}

// TestSearchCanceled checks that the search of an image's indexes ends when the caller has left.
func TestSearchCanceled(t *testing.T) {
	r := openTest(t)
	ctx, done, err := r.client.WithLease(r.ns(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer done(ctx)
	index, err := r.images.ReadArchive(ctx, bytes.NewReader(ociArchive(t)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.images.PickManifest(ctx, index); err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.images.PickManifest(gone, index); !errors.Is(err, context.Canceled) {
		t.Errorf("for nobody: %v", err)
	}
}

// A flood is the start of an archive whose one blob is endless. It makes a call once that many of its bytes have been
// read.
type flood struct {
	head *bytes.Buffer
	read int64
	at   int64
	call func()
}

func newFlood(t *testing.T, at int64, call func()) *flood {
	t.Helper()
	f := &flood{head: new(bytes.Buffer), at: at, call: call}
	w := tar.NewWriter(f.head)
	if err := w.WriteHeader(&tar.Header{Name: "blobs/sha256/x", Size: floodBytes, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	return f
}

// floodBytes is more than any test reads of a flood.
const floodBytes = 512 << 20

func (f *flood) Read(p []byte) (int, error) {
	if f.head.Len() > 0 {
		return f.head.Read(p)
	}
	if f.read >= floodBytes {
		return 0, io.EOF
	}
	clear(p)
	if f.read += int64(len(p)); f.read >= f.at && f.call != nil {
		f.call()
		f.call = nil
	}
	return len(p), nil
}

// TestBlobWithoutEnd checks that reading a blob of any size stops when the disk has no room left or the caller has
// left.
func TestBlobWithoutEnd(t *testing.T) {
	r := openTest(t)
	const little = 8 << 20
	r.images.Reserve = 1 << 62 // as if the disk were almost full
	ctx, enough := r.images.KeepReserve(r.ns(t.Context()), "import image", "flood")
	defer enough()
	<-ctx.Done()
	in := newFlood(t, 0, nil)
	_, err := r.images.ReadArchive(ctx, in)
	if err = r.images.ArchiveError(ctx, "import image", "flood", err); proto.CodeOf(err) != proto.QuotaExceeded ||
		in.read > little {
		t.Errorf("on a full disk: %d MiB were taken, %v", in.read>>20, err)
	}
	r.images.Reserve = 0
	wanted, cancel := context.WithCancel(t.Context())
	defer cancel()
	in = newFlood(t, little, cancel)
	if _, err := r.Images().Import(wanted, "flood", in, nil); proto.CodeOf(err) != proto.Canceled ||
		in.read > 2*little {
		t.Errorf("for nobody: %d MiB were taken, %v", in.read>>20, err)
	}
}

// large returns archives that each have one description larger than the limit.
func large(t *testing.T) map[string][]byte {
	blanks := strings.Repeat(" ", images.MaxDocument)
	manifest := testManifest(t) + blanks
	docker := dockerArchive(t, "docked:2")
	files := filesOf(t, docker)
	for i := range files {
		if files[i].name == "conf.json" {
			files[i].body += blanks
		}
	}
	values := strings.Replace(testIndex(t), "{", `{"x":[`+strings.Repeat("0,", images.MaxValues)+`0],`, 1)
	said := entryOf(indexType, values, "")
	said.Data = []byte(values)
	return map[string][]byte{
		"index":                  withIndex(t, testIndex(t)+blanks),
		"manifest":               withIndex(t, indexOf(t, entryOf(manifestType, manifest, "large:1")), manifest),
		"configuration":          ociArchive(t, "BIG="+strings.Repeat("A", images.MaxDocument)),
		"configuration (Docker)": tarOf(t, files...),
		"index of many values":   withIndex(t, values),
		"index said in another":  withIndex(t, indexOf(t, said), values),
		"configuration said":     saidConfig(t),
	}
}

// saidConfig returns an archive whose manifest contains a configuration of many values.
func saidConfig(t *testing.T) []byte {
	t.Helper()
	var conf string
	for _, f := range filesOf(t, ociArchive(t)) {
		if strings.Contains(f.body, "Entrypoint") {
			conf = f.body
		}
	}
	many := strings.Replace(conf, "{", `{"x":[`+strings.Repeat("0,", images.MaxValues)+`0],`, 1)
	inPlace, err := json.Marshal([]byte(many))
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.Replace(testManifest(t), sha([]byte(conf))+`"`, sha([]byte(many))+`","data":`+string(inPlace),
		1)
	manifest = strings.Replace(manifest, fmt.Sprintf(`"size":%d`, len(conf)), fmt.Sprintf(`"size":%d`, len(many)), 1)
	return withIndex(t, indexOf(t, entryOf(manifestType, manifest, "")), manifest, many)
}

// TestLargeDescriptions checks the limit on descriptions of an image that are read as a whole.
func TestLargeDescriptions(t *testing.T) {
	r := openTest(t)
	for what, archive := range large(t) {
		_, err := r.Images().Import(t.Context(), "large", bytes.NewReader(archive), nil)
		if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), "description") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all, err := r.Images().List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("left: %v %v", all, err)
	}
}

// TestLargeArchives checks the limit on what is kept in memory while an archive is read.
func TestLargeArchives(t *testing.T) {
	r := openTest(t)
	ctx, done, err := r.client.WithLease(r.ns(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer done(ctx)
	listing := func(list string) []byte {
		return tarOf(t, tarFile{name: "manifest.json", body: list},
			tarFile{name: "c", body: `{"architecture":"amd64","os":"linux"}`})
	}
	var links []tarFile
	for i := range images.MaxEntries + 1 {
		links = append(links, tarFile{name: fmt.Sprint(i), kind: tar.TypeSymlink, link: "x"})
	}
	for what, a := range map[string][]byte{
		"a large configuration": large(t)["configuration (Docker)"],
		"many tags": listing(`[{"Config":"c","RepoTags":[` + strings.Repeat(`"a",`, images.MaxValues) +
			`"a"]}]`),
		"many files":  tarOf(t, links...),
		"a long name": tarOf(t, tarFile{name: strings.Repeat("n", images.MaxEntryName+1)}),
		"a long link": tarOf(t, tarFile{name: "n", kind: tar.TypeSymlink, link: strings.Repeat(
			"n", images.MaxEntryName)}),
	} {
		_, err := r.images.ReadArchive(ctx, bytes.NewReader(a))
		if proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.images.ReadArchive(ctx, bytes.NewReader(dockerArchive(t, "docked:2"))); err != nil {
		t.Errorf("one of usual size: %v", err)
	}
	store := &images.Archived{Store: r.client.ContentStore(), Configs: images.MaxDescriptors - 1}
	if _, err := archive.ImportIndex(ctx, store, bytes.NewReader(
		listing(`[{"Config":"c"},{"Config":"c"}]`))); proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("one image more than are read: %v", err)
	}
}

// TestPullLargeDescription checks that a blob that an index declares as too large is not requested.
func TestPullLargeDescription(t *testing.T) {
	r := openTest(t)
	inner, manifest := testIndex(t)+strings.Repeat(" ", images.MaxDocument), testManifest(t)
	index := indexOf(t, entryOf(indexType, inner, ""))
	blobs := make(map[string][]byte)
	for _, body := range []string{index, inner, manifest} {
		blobs["sha256:"+sha([]byte(body))] = []byte(body)
	}
	serve := serveImage(blobs, []byte(index))
	var below atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, sha([]byte(manifest))) {
			below.Add(1)
		}
		serve.ServeHTTP(w, req)
	}))
	defer srv.Close()
	_, err := r.Images().Pull(t.Context(), strings.TrimPrefix(srv.URL, "http://")+"/team/app:1", nil)
	if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), "description") || below.Load() > 0 {
		t.Errorf("%v, and %d times was asked for what it names", err, below.Load())
	}
}

// TestPullAsksNobodyElse checks that addresses that an image gives for its parts are not used.
func TestPullAsksNobodyElse(t *testing.T) {
	r := openTest(t)
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	layer := sha([]byte("elsewhere"))
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":2},
		"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:%s","size":9,"urls":[%q]}]}`,
		sha([]byte("{}")), layer, other.URL)
	index := indexOf(t, entryOf("application/vnd.oci.image.manifest.v1+json", manifest, ""))
	blobs := map[string][]byte{"sha256:" + sha([]byte("{}")): []byte("{}")}
	for _, body := range []string{index, manifest} {
		blobs["sha256:"+sha([]byte(body))] = []byte(body)
	}
	srv := httptest.NewServer(serveImage(blobs, []byte(index)))
	defer srv.Close()
	if _, err := r.Images().Pull(t.Context(), strings.TrimPrefix(srv.URL, "http://")+"/team/app:1", nil); err == nil ||
		asked.Load() > 0 {
		t.Errorf("%v, and %d times was asked elsewhere", err, asked.Load())
	}
}

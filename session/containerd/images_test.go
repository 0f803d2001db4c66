package containerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"berth/proto"
	"berth/session"
)

func TestImageNames(t *testing.T) {
	for ref, want := range map[string]string{"base": "base", "base:latest": "base", "debian:12": "debian:12", "example.org/a/b:c": "example.org/a/b:c"} {
		full, err := fullName("test", ref)
		if err != nil || shortName(full) != want {
			t.Errorf("%s became %q and %q, %v", ref, full, shortName(full), err)
		}
	}
	for _, ref := range []string{"", "Base", "a b", "../x", "sha256:12", "a:b:c", "x\x00", "-", strings.Repeat("a", 300)} {
		if _, err := fullName("test", ref); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%q is a name: %v", ref, err)
		}
	}
}

func FuzzImageName(f *testing.F) {
	f.Add("debian:12")
	f.Add("sha256:0123")
	f.Fuzz(func(t *testing.T, ref string) {
		full, err := fullName("fuzz", ref)
		if err != nil {
			if proto.CodeOf(err) != proto.InvalidArgument {
				t.Errorf("%q: %v", ref, err)
			}
			return
		}
		if again, err := fullName("fuzz", full); err != nil || again != full {
			t.Errorf("%q is %q, and that is %q (%v)", ref, full, again, err)
		}
	})
}

// dockerArchive is what "docker save" writes, older form.
func dockerArchive(t *testing.T) []byte {
	layer := tarOf(t, tarFile{name: "etc/", kind: tar.TypeDir, mode: 0o755})
	conf := `{"architecture":"` + runtime.GOARCH + `","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:` + sha(layer) + `"]}}`
	return tarOf(t,
		tarFile{name: "layer/layer.tar", body: string(layer), mode: 0o644},
		tarFile{name: "conf.json", body: conf, mode: 0o644},
		tarFile{name: "manifest.json", body: `[{"Config":"conf.json","RepoTags":["docked:2"],"Layers":["layer/layer.tar"]}]`, mode: 0o644},
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
		"named:1": oci, "docked:2": dockerArchive(t),
	} {
		var stages []string
		img, err := im.Import(t.Context(), "", bytes.NewReader(archive), func(p session.ImageProgress) { stages = append(stages, p.Stage) })
		if err != nil || img.Name != name || !strings.HasPrefix(img.Digest, "sha256:") || img.SizeBytes == 0 || img.Platform != "linux/"+runtime.GOARCH {
			t.Fatalf("imported %+v, %v", img, err)
		}
		if got := strings.Join(stages, " "); got != "importing unpacking done" {
			t.Errorf("stages: %s", got)
		}
	}
	for _, kind := range []string{"gzip", "zstd"} {
		if img, err := im.Import(t.Context(), kind, bytes.NewReader(compressed(t, oci, kind)), nil); err != nil || img.Name != kind {
			t.Errorf("%s: %+v, %v", kind, img, err)
		}
	}
	list, err := im.List(t.Context())
	if err != nil || len(list) != 4 || list[0].Name != "docked:2" {
		t.Errorf("listed %+v, %v", list, err)
	}
	if err := im.Remove(t.Context(), list[0].Digest); proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("removing a digest, which containers may have: %v", err)
	}
	if _, err := im.Resolve(t.Context(), list[0].Digest); err != nil {
		t.Error(err)
	}
}

// TestImagePins: a digest stays startable when its name is gone or has moved, until a sweep is told
// that nobody needs it.
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
	if left := entries(t, filepath.Join(r.cfg.Dir, "ctr", "io.containerd.snapshotter.v1.overlayfs", "snapshots")); len(left) > 0 {
		t.Errorf("layers left on disk: %v", left)
	}
	if err := r.Start(t.Context(), id, spec); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("starting from what is gone: %v", err)
	}
}

// TestHostileArchives: nothing but an error comes of them.
func TestHostileArchives(t *testing.T) {
	r := openTest(t)
	outside := filepath.Join(t.TempDir(), "outside")
	good := ociArchive(t)
	evil := func(files ...tarFile) []byte { return ociArchiveOf(t, runtime.GOARCH, tarOf(t, files...), nil) }
	climb := strings.Repeat("../", 30) + outside
	cases := map[string]struct {
		archive []byte
		code    proto.Code // empty: may succeed, as long as nothing is written outside
	}{
		"empty":     {nil, proto.InvalidArgument},
		"noise":     {bytes.Repeat([]byte("noise"), 1000), proto.InvalidArgument},
		"cut short": {good[:len(good)/2], proto.InvalidArgument},
		"bad gzip":  {append([]byte{0x1f, 0x8b, 8, 0}, good[:100]...), proto.InvalidArgument},
		"no image":  {tarOf(t, tarFile{name: "x", body: "y"}), proto.InvalidArgument},
		"bad index": {tarOf(t, tarFile{name: "oci-layout", body: `{"imageLayoutVersion":"1.0.0"}`},
			tarFile{name: "index.json", body: `{"manifests":[{"digest":"sha256:../../etc"}]}`}), ""},
		"missing blobs":   {tarOf(t, tarFile{name: "manifest.json", body: `[{"Config":"c","Layers":["l"]}]`}), proto.InvalidArgument},
		"changed blob":    {bytes.Replace(good, []byte("secret"), []byte("SECRET"), 1), proto.InvalidArgument},
		"other machine":   {ociArchiveOf(t, "s390x", tarOf(t), nil), proto.Unsupported},
		"climbs":          {evil(tarFile{name: climb, body: "x", mode: 0o644}), ""},
		"absolute":        {evil(tarFile{name: outside, body: "x", mode: 0o644}), ""},
		"through symlink": {evil(tarFile{name: "out", kind: tar.TypeSymlink, link: filepath.Dir(outside)}, tarFile{name: "out/outside", body: "x"}), ""},
		"hard link":       {evil(tarFile{name: "out", kind: tar.TypeLink, link: "/etc/shadow"}), proto.InvalidArgument},
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

// TestHostileWorkspaceLink: an image that has /workspace as a symlink, or a file for /proc, gets real ones, and nothing
// is made where the links point.
func TestHostileWorkspaceLink(t *testing.T) {
	r := openTest(t)
	layer := tarOf(t, tarFile{name: "workspace", kind: tar.TypeSymlink, link: "/etc"}, tarFile{name: ".berth", kind: tar.TypeSymlink, link: "/proc"},
		tarFile{name: "etc/", kind: tar.TypeDir, mode: 0o755}, tarFile{name: "tmp", kind: tar.TypeSymlink, link: "/etc"},
		tarFile{name: "proc", body: "x"}, tarFile{name: "sys", kind: tar.TypeSymlink, link: "proc"}, tarFile{name: "dev", kind: tar.TypeSymlink, link: "/etc"})
	img, err := r.Images().Import(t.Context(), "linked", bytes.NewReader(ociArchiveOf(t, runtime.GOARCH, layer, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	id := newID(proto.ContainerPrefix)
	err = r.Start(t.Context(), id, session.Spec{Image: img.Digest, Class: proto.ClassRunc, Workspace: newID(proto.WorkspacePrefix), Limits: testLimits})
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

// TestPull speaks the registry's protocol with a small real registry on loopback.
func TestPull(t *testing.T) {
	r := openTest(t)
	blobs := make(map[string][]byte)
	var index []byte
	for tr := tar.NewReader(bytes.NewReader(ociArchive(t))); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(tr)
		if hdr.Name == "index.json" {
			index = body
		}
		blobs["sha256:"+sha(body)] = body
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

// TestImageReserve: an image that would leave too little of the disk is given up, with an error to act on, and leaves nothing.
func TestImageReserve(t *testing.T) {
	r := openTest(t)
	whole := ociArchive(t)
	r.reserve = 1 << 62 // as if the disk were all but full
	in, out := io.Pipe()
	go func() { // the archive comes no faster than the disk is looked at
		_, _ = out.Write(whole[:len(whole)/2])
		time.Sleep(3 * reserveEvery)
		_, err := out.Write(whole[len(whole)/2:])
		out.CloseWithError(err)
	}()
	_, err := r.Images().Import(t.Context(), "reserve", in, nil)
	if code := proto.CodeOf(err); code != proto.QuotaExceeded || !strings.Contains(err.Error(), "disk") {
		t.Errorf("an image that does not fit: %q %v", code, err)
	}
	in.Close()
	r.reserve = 0
	if _, err := r.Images().Import(t.Context(), "reserve", bytes.NewReader(whole), nil); err != nil {
		t.Errorf("once there is room: %v", err)
	}
}

// TestUnusableImages: what no container could be made of is refused when it comes.
func TestUnusableImages(t *testing.T) {
	r := openTest(t)
	for what, archive := range map[string][]byte{
		"a large variable":    ociArchive(t, "BIG="+strings.Repeat("A", maxVariable)),
		"a large environment": ociArchive(t, slices.Repeat([]string{"A=" + strings.Repeat("A", 1000)}, maxEnvironment/1000)...),
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

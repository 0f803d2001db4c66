package buildtest

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"berth/proto"
)

// zstdLayer returns a layer of one file, compressed with zstd.
func zstdLayer(t *testing.T, path, text string) v1.Layer {
	t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(tarOf(path, text))), nil
	}, tarball.WithCompression(compression.ZStd), tarball.WithMediaType(types.OCILayerZStd))
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// TestZstdLayers pulls, imports and builds from an image of whose layers one is compressed with zstd.
func TestZstdLayers(t *testing.T) {
	c := connect(t, daemon)
	ref, err := name.ParseReference(registryHost + "/berth/zstd:1")
	if err != nil {
		t.Fatal(err)
	}
	base, err := name.ParseReference(registryHost + "/berth/base:1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(base)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, zstdLayer(t, "etc/zstd", "unpacked\n")); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	pulled, err := c.PullImage(t.Context(), ref.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := runIn(t, c, pulled.Name, "cat /etc/zstd"); got != "unpacked\n" {
		t.Errorf("a pulled image has %q", got)
	}
	files := map[string]string{"Dockerfile": "FROM " + ref.String() + "\nUSER root\n" +
		"RUN cat /etc/zstd /etc/zstd > /twice\n"}
	built, r, err := build(t.Context(), c, proto.BuildOptions{Name: "zstd-built"}, contextOf(t, files), nil)
	if err != nil {
		t.Fatal(err, r.logs)
	}
	if got := runIn(t, c, built.Name, "cat /twice"); got != "unpacked\nunpacked\n" {
		t.Errorf("an image that was built on it has %q", got)
	}
	imported, err := c.ImportImage(t.Context(), "zstd-imported", archiveOf(t, image), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if imported.Digest != pulled.Digest {
		t.Errorf("the imported image is %s, the pulled one %s", imported.Digest, pulled.Digest)
	}
	if got := runIn(t, c, imported.Name, "cat /etc/zstd"); got != "unpacked\n" {
		t.Errorf("an imported image has %q", got)
	}
}

// TestImportOfOurOwn imports what "image build base --output" writes. It has the name that the build gives.
func TestImportOfOurOwn(t *testing.T) {
	c := connect(t, daemon)
	f, err := os.Open(os.Getenv("BERTH_BASE_IMAGE"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := c.ImportImage(t.Context(), "", f, 0, nil)
	if err != nil || img.Name != "base" {
		t.Errorf("imported %+v, %v", img, err)
	}
}

// archiveOf returns an OCI archive of an image.
func archiveOf(t *testing.T, image v1.Image) io.Reader {
	t.Helper()
	dir := t.TempDir()
	at, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = at.AppendImage(image)
	}
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

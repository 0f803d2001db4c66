package sandboximage

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Annotations of ours. The archive says what it was made from, so that no file beside it has to.
const (
	keyAnnotation      = "berth.definition" // definition.key
	packagesAnnotation = "berth.packages"   // packageSet.fingerprint
	countAnnotation    = "berth.package-count"
	unpackedAnnotation = "berth.unpacked-size" // of a layer
)

// containerdName is where containerd's importer looks for the image's name.
const containerdName = "io.containerd.image.name"

// writeArchive replaces the file at path with an OCI archive of the image.
func (b *build) writeArchive(path string, layer blob, pkgs packageSet, epoch time.Time) error {
	config, err := encode(v1.MediaTypeImageConfig, b.config(layer, epoch))
	if err != nil {
		return err
	}
	manifest, err := encode(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    config.Descriptor,
		Layers: []v1.Descriptor{{
			MediaType:   v1.MediaTypeImageLayerZstd,
			Digest:      layer.digest,
			Size:        layer.size,
			Annotations: map[string]string{unpackedAnnotation: strconv.FormatInt(layer.unpacked, 10)},
		}},
	})
	if err != nil {
		return err
	}
	index, err := encode(v1.MediaTypeImageIndex, b.index(manifest.Descriptor, pkgs))
	if err != nil {
		return err
	}
	return replaceFile(path, func(f *os.File) error {
		return writeLayout(f, index, []document{manifest, config}, layer, epoch)
	})
}

// A document is a JSON blob of the image.
type document struct {
	v1.Descriptor
	data []byte
}

func encode(mediaType string, v any) (document, error) {
	data, err := json.Marshal(v)
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	return document{d, data}, err
}

// config is what containers of the image start with unless told otherwise.
func (b *build) config(layer blob, epoch time.Time) v1.Image {
	return v1.Image{
		Created:  &epoch,
		Platform: platform(),
		Config: v1.ImageConfig{
			User:       "1000:1000", // numbers need no look into the image's passwd
			Env:        b.def.env,
			Cmd:        []string{"/bin/bash"},
			WorkingDir: "/workspace",
		},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.diffID}},
		History: []v1.History{{Created: &epoch, CreatedBy: "berth image build " + b.def.name}},
	}
}

// platform is the host's: packages' scripts ran on it.
func platform() v1.Platform {
	p := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	if p.Architecture == "arm64" {
		p.Variant = "v8"
	}
	return p
}

// index names the image and says what it was made from.
func (b *build) index(manifest v1.Descriptor, pkgs packageSet) v1.Index {
	p := platform()
	manifest.Platform = &p
	manifest.Annotations = map[string]string{
		v1.AnnotationRefName: b.def.name,
		containerdName:       Ref(b.def.name),
		keyAnnotation:        b.def.key,
		packagesAnnotation:   pkgs.fingerprint(),
		countAnnotation:      strconv.Itoa(len(pkgs)),
	}
	return v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{manifest},
	}
}

// writeLayout writes the archive, the small parts first, so that it can be looked at without
// reading the layer.
func writeLayout(w io.Writer, index document, docs []document, layer blob, epoch time.Time) error {
	t := tar.NewWriter(w)
	layout, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	add := func(name string, size int64, r io.Reader) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: epoch}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(t, r)
		return err
	}
	text := func(name string, data []byte) error {
		return add(name, int64(len(data)), strings.NewReader(string(data)))
	}
	err = errors.Join(text(v1.ImageLayoutFile, layout), text(v1.ImageIndexFile, index.data))
	for _, d := range docs {
		err = errors.Join(err, text(blobName(d.Digest), d.data))
	}
	f, openErr := os.Open(layer.path)
	if err = errors.Join(err, openErr); err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(add(blobName(layer.digest), layer.size, f), t.Close())
}

// blobName is where an image layout keeps a blob.
func blobName(d digest.Digest) string {
	return v1.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded()
}

// reuse describes the archive at path if it is whole and was made from the definition with this
// key. The layer is not read: archives only ever appear whole, by renaming.
func reuse(path, key string) (Result, bool) {
	a, err := readArchive(path)
	if err != nil || a.entry.Annotations[keyAnnotation] != key {
		return Result{}, false
	}
	r := Result{Path: path, Digest: a.entry.Digest.String(), Size: a.size, Reused: true, Ref: a.entry.Annotations[containerdName]}
	r.Packages, _ = strconv.Atoi(a.entry.Annotations[countAnnotation])
	for _, l := range a.manifest.Layers {
		if a.blobs[l.Digest] != l.Size {
			return Result{}, false
		}
		unpacked, _ := strconv.ParseInt(l.Annotations[unpackedAnnotation], 10, 64)
		r.Layers = append(r.Layers, Layer{Digest: l.Digest.String(), Size: l.Size, Unpacked: unpacked})
	}
	return r, len(r.Layers) > 0
}

// fingerprint is that of the packages in the archive at path; empty if it cannot be read.
func fingerprint(path string) string {
	a, err := readArchive(path)
	if err != nil {
		return ""
	}
	return a.entry.Annotations[packagesAnnotation]
}

// An archive is what can be told about one without reading its layers.
type archive struct {
	entry    v1.Descriptor // the image in the index
	manifest v1.Manifest
	blobs    map[digest.Digest]int64 // sizes
	size     int64                   // of the file
}

// smallBlob bounds what readArchive takes for JSON, in bytes; configs of images have a few KB.
const smallBlob = 1 << 20

// readArchive reads the headers and small parts of the archive at path, seeking over the rest.
func readArchive(path string) (archive, error) {
	a := archive{blobs: map[digest.Digest]int64{}}
	f, err := os.Open(path)
	if err != nil {
		return a, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return a, err
	}
	a.size = info.Size()
	small, err := a.scan(tar.NewReader(f))
	if err != nil {
		return a, err
	}
	var index v1.Index
	if err := json.Unmarshal(small[v1.ImageIndexFile], &index); err != nil {
		return a, err
	}
	if len(index.Manifests) != 1 {
		return a, errors.New("not an archive of one image")
	}
	a.entry = index.Manifests[0]
	return a, json.Unmarshal(small[blobName(a.entry.Digest)], &a.manifest)
}

// scan notes the size of each blob and returns the contents of the small ones.
func (a *archive) scan(t *tar.Reader) (map[string][]byte, error) {
	small := map[string][]byte{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return small, nil
		}
		if err != nil {
			return nil, err
		}
		if hex, ok := strings.CutPrefix(h.Name, v1.ImageBlobsDir+"/sha256/"); ok {
			a.blobs[digest.NewDigestFromEncoded(digest.SHA256, hex)] = h.Size
		}
		if h.Size <= smallBlob {
			if small[h.Name], err = io.ReadAll(t); err != nil {
				return nil, err
			}
		}
	}
}

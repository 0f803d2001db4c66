// Package ociarchive writes the layers of an image as an OCI archive, reads such an archive without its layers, and
// keeps finished layers of an unfinished image in a cache. Package sandboximage uses it.
package ociarchive

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

	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/layer"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Our annotations. They record what the archive was made from, so no file beside it is needed.
const (
	keyAnnotation      = "berth.definition" // definition.key
	packagesAnnotation = "berth.packages"   // packageSet.fingerprint
	countAnnotation    = "berth.package-count"
	unpackedAnnotation = "berth.unpacked-size" // of a layer
	layerAnnotation    = "berth.layer"         // blob.name
	layerKeyAnnotation = "berth.layer-key"     // blob.key
	layerEpoch         = "berth.layer-epoch"   // blob.epoch, in Unix seconds
	diffAnnotation     = "berth.layer-diff"    // blob.diffID
)

// ContainerdName is the annotation in which containerd's importer looks for the image's name.
const ContainerdName = "io.containerd.image.name"

// An imageInfo says what an archive is to say about its image.
type Image struct {
	Name     string
	Ref      string   // name for importers
	Key      string   // of the definition
	Env      []string // environment of containers
	Packages string   // fingerprint of the packages
}

// Write replaces the file at path with an OCI archive of the image. layers has the lowest first.
func Write(path string, info Image, layers []layer.Layer) error {
	config, err := encode(v1.MediaTypeImageConfig, configOf(info, layers))
	if err != nil {
		return err
	}
	m := v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    config.Descriptor,
	}
	count := 0
	for _, l := range layers {
		m.Layers = append(m.Layers, descriptorOf(l))
		count += l.Packages
	}
	manifest, err := encode(v1.MediaTypeImageManifest, m)
	if err != nil {
		return err
	}
	index, err := encode(v1.MediaTypeImageIndex, indexOf(info, manifest.Descriptor, count))
	if err != nil {
		return err
	}
	return buildenv.ReplaceFile(path, func(f *os.File) error {
		return writeLayout(f, index, []document{manifest, config}, layers)
	})
}

// descriptorOf returns the layer's entry in a manifest. layerOf reads its annotations; a layer that is a whole image
// needs only its size.
func descriptorOf(l layer.Layer) v1.Descriptor {
	notes := map[string]string{unpackedAnnotation: strconv.FormatInt(l.Unpacked, 10)}
	if l.Name != "" {
		notes[layerAnnotation], notes[layerKeyAnnotation] = l.Name, l.Key
		notes[countAnnotation] = strconv.Itoa(l.Packages)
		notes[layerEpoch] = strconv.FormatInt(l.Epoch.Unix(), 10)
		notes[diffAnnotation] = l.DiffID.String()
	}
	return v1.Descriptor{MediaType: v1.MediaTypeImageLayerZstd, Digest: l.Digest, Size: l.Size, Annotations: notes}
}

// layerOf returns the layer of one of our descriptors, without the place of its bytes.
func layerOf(d v1.Descriptor) layer.Layer {
	l := layer.Layer{
		Name: d.Annotations[layerAnnotation], Key: d.Annotations[layerKeyAnnotation],
		Digest: d.Digest, DiffID: digest.Digest(d.Annotations[diffAnnotation]), Size: d.Size,
	}
	l.Unpacked, _ = strconv.ParseInt(d.Annotations[unpackedAnnotation], 10, 64)
	l.Packages, _ = strconv.Atoi(d.Annotations[countAnnotation])
	sec, _ := strconv.ParseInt(d.Annotations[layerEpoch], 10, 64)
	l.Epoch = time.Unix(sec, 0).UTC()
	return l
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

// configOf returns the image's configuration of containers.
func configOf(info Image, layers []layer.Layer) v1.Image {
	image := v1.Image{
		Created:  &layers[len(layers)-1].Epoch,
		Platform: platform(),
		Config: v1.ImageConfig{
			User:       "1000:1000", // numbers need no lookup in the image's passwd
			Env:        info.Env,
			Cmd:        []string{"/bin/bash"},
			WorkingDir: "/workspace",
		},
		RootFS: v1.RootFS{Type: "layers"},
	}
	for _, l := range layers {
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, l.DiffID)
		image.History = append(image.History, v1.History{Created: &l.Epoch, CreatedBy: "berth image build " +
			info.Name, Comment: l.Name})
	}
	return image
}

// platform is the host's: packages' scripts ran on it.
func platform() v1.Platform {
	p := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	if p.Architecture == "arm64" {
		p.Variant = "v8"
	}
	return p
}

// indexOf names the image and records what it was made from.
func indexOf(info Image, manifest v1.Descriptor, count int) v1.Index {
	p := platform()
	manifest.Platform = &p
	manifest.Annotations = map[string]string{
		v1.AnnotationRefName: info.Name,
		ContainerdName:       info.Ref,
		keyAnnotation:        info.Key,
		packagesAnnotation:   info.Packages,
		countAnnotation:      strconv.Itoa(count),
	}
	return v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{manifest},
	}
}

// writeLayout writes the archive, the small parts first, so that readers can skip the layers.
func writeLayout(w io.Writer, index document, docs []document, layers []layer.Layer) error {
	t := tar.NewWriter(w)
	epoch := layers[len(layers)-1].Epoch
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
		err = errors.Join(err, text(BlobName(d.Digest), d.data))
	}
	for _, l := range layers {
		if err != nil {
			return err
		}
		err = addLayer(add, l)
	}
	return errors.Join(err, t.Close())
}

// addLayer copies the layer's bytes into the archive.
func addLayer(add func(name string, size int64, r io.Reader) error, l layer.Layer) error {
	r, err := l.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	return add(BlobName(l.Digest), l.Size, r)
}

// BlobName is the path of a blob in an image layout.
func BlobName(d digest.Digest) string {
	return v1.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded()
}

// Find reads the archive at path. ok is true if it is whole and was made from the definition with this key. It
// does not read the layers: archives appear whole, by renaming.
func Find(path, key string) (a Archive, ok bool) {
	a, err := Read(path)
	if err != nil || a.Entry.Annotations[keyAnnotation] != key {
		return a, false
	}
	for _, l := range a.manifest.Layers {
		if a.blobs[l.Digest].size != l.Size {
			return a, false
		}
	}
	return a, len(a.manifest.Layers) > 0
}

// An archive is the content of one without its layers.
type Archive struct {
	Path     string
	Entry    v1.Descriptor // the image in the index
	manifest v1.Manifest
	Config   v1.Image
	blobs    map[digest.Digest]extent
	Size     int64 // of the file
}

// An extent is the place of a blob in the file.
type extent struct{ offset, size int64 }

// Name returns the name of the image.
func (a Archive) Name() string { return a.Entry.Annotations[v1.AnnotationRefName] }

// Packages returns the fingerprint of the packages that the image was made from.
func (a Archive) Packages() string { return a.Entry.Annotations[packagesAnnotation] }

// PackageCount returns the number of Debian packages in the image.
func (a Archive) PackageCount() int {
	n, _ := strconv.Atoi(a.Entry.Annotations[countAnnotation])
	return n
}

// Layers returns the layers, lowest first.
func (a Archive) Layers() []layer.Layer {
	var list []layer.Layer
	for i, d := range a.manifest.Layers {
		l := layerOf(d)
		l.Path, l.Offset = a.Path, a.blobs[d.Digest].offset
		if l.Name == "" && i < len(a.Config.RootFS.DiffIDs) && a.Config.Created != nil {
			l.DiffID, l.Epoch = a.Config.RootFS.DiffIDs[i], *a.Config.Created
		}
		list = append(list, l)
	}
	return list
}

// smallBlob bounds the JSON that readArchive reads, in bytes; image configs have a few KB.
const smallBlob = 1 << 20

// Read reads the headers and small parts of the archive at path, and seeks over the rest.
func Read(path string) (Archive, error) {
	a := Archive{Path: path, blobs: map[digest.Digest]extent{}}
	f, err := os.Open(path)
	if err != nil {
		return a, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return a, err
	}
	a.Size = info.Size()
	small, err := a.scan(f)
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
	a.Entry = index.Manifests[0]
	if err := json.Unmarshal(small[BlobName(a.Entry.Digest)], &a.manifest); err != nil {
		return a, err
	}
	return a, json.Unmarshal(small[BlobName(a.manifest.Config.Digest)], &a.Config)
}

// scan records the place of each blob and returns the contents of the small ones.
func (a *Archive) scan(f io.ReadSeeker) (map[string][]byte, error) {
	t, small := tar.NewReader(f), map[string][]byte{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return small, nil
		}
		if err != nil {
			return nil, err
		}
		if hex, ok := strings.CutPrefix(h.Name, v1.ImageBlobsDir+"/sha256/"); ok {
			at, err := f.Seek(0, io.SeekCurrent) // exactly the header has been read
			if err != nil {
				return nil, err
			}
			a.blobs[digest.NewDigestFromEncoded(digest.SHA256, hex)] = extent{at, h.Size}
		}
		if h.Size <= smallBlob {
			if small[h.Name], err = io.ReadAll(t); err != nil {
				return nil, err
			}
		}
	}
}

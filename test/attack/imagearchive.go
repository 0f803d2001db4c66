package attack

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// An image is an OCI archive in the making, good but for what a case makes wrong.
type image struct {
	layers  []imageLayer
	options map[string]any // "config" of its configuration
}

// An imageLayer is one layer as it is stored.
type imageLayer struct {
	stored []byte // a tar, plain unless gzip
	gzip   bool
	plain  string // the digest of the unpacked tar; "" has it be that of stored
	claims string // what the manifest calls it; "" is its digest
}

// An imageMember is one member of a layer.
type imageMember struct {
	tar.Header
	body string
}

// layerOf is a plain layer. A directory or link needs no body, and what is no type is a file.
// Every member is written with its true size: what a case makes wrong is wrong in one place, so that it is
// known what was refused.
func layerOf(members ...imageMember) imageLayer {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members {
		h := m.Header
		if h.Size = int64(len(m.body)); h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		_ = w.WriteHeader(&h) // to memory; what a case asks for is a valid header
		_, _ = io.WriteString(w, m.body)
	}
	_ = w.Close()
	return imageLayer{stored: buf.Bytes()}
}

// baseLayer is the least that a root file system has.
func baseLayer() imageLayer {
	return layerOf(
		imageMember{Header: tar.Header{Name: "etc/", Typeflag: tar.TypeDir}},
		imageMember{Header: tar.Header{Name: "etc/passwd", Mode: 0o644},
			body: "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n"},
		imageMember{Header: tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}},
	)
}

// digestOf is how OCI names content.
func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// archive is the whole OCI archive.
// It is an index that names a manifest, which names the configuration and layers, each by its digest.
func (i image) archive() io.Reader {
	var files []imageMember
	// A blob may be stored under a digest that is not its own, which is the lie that some cases tell.
	blob := func(claims string, data []byte) string {
		if claims == "" {
			claims = digestOf(data)
		}
		name := "blobs/" + strings.Replace(claims, ":", "/", 1)
		files = append(files, imageMember{Header: tar.Header{Name: name, Mode: 0o644}, body: string(data)})
		return claims
	}
	var diffs []string
	var layers []any
	for _, l := range i.layers {
		kind := "application/vnd.oci.image.layer.v1.tar"
		if l.gzip {
			kind += "+gzip"
		}
		if l.plain == "" {
			l.plain = digestOf(l.stored)
		}
		diffs = append(diffs, l.plain)
		layers = append(layers, descriptor(kind, blob(l.claims, l.stored), len(l.stored)))
	}
	conf := marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux", "config": i.options,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs}})
	manifest := marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType,
		"config": descriptor("application/vnd.oci.image.config.v1+json", blob("", conf), len(conf)), "layers": layers})
	index := marshal(map[string]any{"schemaVersion": 2, "manifests": []any{descriptor(manifestType, blob("", manifest),
		len(manifest))}})
	files = append(files, imageMember{Header: tar.Header{Name: "oci-layout", Mode: 0o644},
		body: `{"imageLayoutVersion":"1.0.0"}`},
		imageMember{Header: tar.Header{Name: "index.json", Mode: 0o644}, body: string(index)})
	return bytes.NewReader(layerOf(files...).stored)
}

// The type of an image for one platform.
const manifestType = "application/vnd.oci.image.manifest.v1+json"

// descriptor is how a manifest refers to a blob.
func descriptor(kind, digest string, size int) map[string]any {
	return map[string]any{"mediaType": kind, "digest": digest, "size": size}
}

// marshal is for values that cannot fail.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// Import brings an image to the daemon under a name of this case and class, which goes when the case is over.
// The name has the class in it, because the same case runs once per class and each run removes what it
// made.
func (t *Target) Import(ctx context.Context, what string, i image) (name, digest string, err error) {
	name = "berth-attack/" + what + "-" + string(t.Class)
	got, err := t.ImportImage(ctx, name, i.archive(), 0, nil)
	if err == nil {
		name = got.Name
		t.Later(func(ctx context.Context) error {
			_ = t.RemoveImage(ctx, name) // a second import of the same name is removed twice
			return nil
		})
	}
	return name, got.Digest, err
}

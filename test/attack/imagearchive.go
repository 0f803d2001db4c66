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

// An image describes an OCI archive. It is valid except for what a case changes.
type image struct {
	layers  []imageLayer
	options map[string]any // "config" of its configuration
}

// An imageLayer is one layer of an image.
type imageLayer struct {
	stored []byte // a tar, uncompressed unless gzip is set
	gzip   bool
	plain  string // digest of the unpacked tar; "" is the digest of stored
	claims string // digest in the manifest; "" is the true digest
}

// An imageMember is one member of a layer.
type imageMember struct {
	tar.Header
	body string
}

// layerOf returns an uncompressed layer. A member without a type is a file. Every member has its true size: each case
// changes one thing only, so that it is clear what was refused.
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
		_ = w.WriteHeader(&h) // cannot fail: it writes to memory, and the header is valid
		_, _ = io.WriteString(w, m.body)
	}
	_ = w.Close()
	return imageLayer{stored: buf.Bytes()}
}

// baseLayer returns the minimum of a root file system.
func baseLayer() imageLayer {
	return layerOf(
		imageMember{Header: tar.Header{Name: "etc/", Typeflag: tar.TypeDir}},
		imageMember{Header: tar.Header{Name: "etc/passwd", Mode: 0o644},
			body: "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n"},
		imageMember{Header: tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}},
	)
}

// digestOf returns the OCI digest of content.
func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// archive returns the OCI archive. Its index names a manifest, which names the configuration and the layers by
// digest.
func (i image) archive() io.Reader {
	var files []imageMember
	// Some cases store a blob under a false digest.
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

// descriptor returns a manifest's reference to a blob.
func descriptor(kind, digest string, size int) map[string]any {
	return map[string]any{"mediaType": kind, "digest": digest, "size": size}
}

// marshal encodes values that cannot fail.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// Import imports an image and removes it at the end of the case. The name contains the class, because the same case
// runs once per class and each run removes its image.
func (t *Target) Import(ctx context.Context, what string, i image) (name, digest string, err error) {
	name = "berth-attack/" + what + "-" + string(t.Class)
	got, err := t.ImportImage(ctx, name, i.archive(), 0, nil)
	if err == nil {
		name = got.Name
		t.Later(func(ctx context.Context) error {
			_ = t.RemoveImage(ctx, name) // fails if the same name was imported and removed twice
			return nil
		})
	}
	return name, got.Digest, err
}

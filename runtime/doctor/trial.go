package doctor

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"berth/runtime/containerd"
	"berth/runtime/diskpool"

	goruntime "runtime"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/proto"
	"berth/session"
)

// trialFirstID separates the users of trial sandboxes from those of a daemon on the same machine.
const trialFirstID = diskpool.DefaultFirst + (diskpool.IdRanges-16)*diskpool.IDRange

// answerTime bounds how long the guest of a trial may take to answer.
const answerTime = 3 * time.Second

// A Trial is the result of starting one sandbox.
type Trial struct {
	Class proto.RuntimeClass
	Err   error // nil: the sandbox started, its guest answered, and nothing is left of the sandbox
	// Slow is the reason why runc made this sandbox, or would make the next one, in place of the fork server. nil:
	// there is no such reason, or the class is another one
	Slow error
}

// Try opens a Runtime of its own in a temporary directory. It starts a sandbox of each class over an almost empty
// image, does the handshake with its guest, and removes everything. It needs no daemon and no image. Call
// mountns.Private first. An error means that no class could be tried.
func Try(ctx context.Context, cfg containerd.Config, classes ...proto.RuntimeClass) (_ []Trial, err error) {
	if cfg.Dir, err = os.MkdirTemp("", "berth-trial-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(cfg.Dir)
	cfg.PoolBytes, cfg.FirstID = 1<<30, trialFirstID
	r, err := containerd.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	archive, err := trialImage()
	if err != nil {
		return nil, err
	}
	img, err := r.Images().Import(ctx, "trial", bytes.NewReader(archive), nil)
	if err != nil {
		return nil, err
	}
	var done []Trial
	for _, class := range classes {
		tried := Trial{Class: class, Err: try(ctx, r, cfg, img.Digest, class)}
		if class == proto.ClassRunc {
			tried.Slow = r.SetupFailure()
		}
		done = append(done, tried)
	}
	return done, nil
}

// try starts and removes one sandbox.
func try(ctx context.Context, r *containerd.Runtime, cfg containerd.Config, image string, class proto.RuntimeClass) (
	err error) {
	id := proto.ID(proto.ContainerPrefix, [16]byte{15: 1})
	spec := session.Spec{
		Image: image, Class: class, Workspace: proto.ID(proto.WorkspacePrefix, [16]byte{15: 1}),
		Layer:  proto.ID(proto.LayerPrefix, [16]byte{15: 1}),
		Limits: proto.Limits{CPUs: 1, MemoryBytes: 256 << 20, PIDs: 64, DiskBytes: 64 << 20, OpenFiles: 256},
	}
	defer func() {
		tidy := context.WithoutCancel(ctx)
		for _, e := range []error{r.Stop(tidy, id), r.RemoveWorkspace(tidy, spec.Workspace),
			r.RemoveLayer(tidy, spec.Layer)} {
			if err == nil && e != nil {
				err = fmt.Errorf("removing it again: %w", e)
			}
		}
	}()
	if err := r.Start(ctx, id, spec); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := r.Dial(ctx, id)
	if err != nil {
		return err
	}
	if cfg.Handshake != nil {
		if conn, err = cfg.Handshake(ctx, conn); err != nil {
			return err
		}
	}
	return conn.Close()
}

// trialImage returns an OCI archive with one almost empty layer. Only the guest runs in it.
func trialImage() ([]byte, error) {
	var layer, archive tarball
	layer.dir("etc/", "home/", "workspace/")
	layer.file("etc/passwd", []byte("root:x:0:0::/:/\n"))
	blob := func(mediaType string, v any) ocispec.Descriptor {
		data, isBytes := v.([]byte)
		if !isBytes {
			data, _ = json.Marshal(v) // plain structs cannot fail
		}
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		archive.file("blobs/sha256/"+d.Digest.Encoded(), data)
		return d
	}
	root := blob(ocispec.MediaTypeImageLayer, layer.bytes())
	config := blob(ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: ocispec.Platform{Architecture: goruntime.GOARCH, OS: "linux"},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{root.Digest}},
	})
	manifest := blob(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config,
		Layers: []ocispec.Descriptor{root},
	})
	index, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2},
		Manifests: []ocispec.Descriptor{manifest}})
	if err != nil {
		return nil, err
	}
	archive.file("index.json", index)
	archive.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return archive.bytes(), archive.err
}

// A tarball builds a tar archive and keeps the first error.
type tarball struct {
	buf bytes.Buffer
	w   *tar.Writer
	err error
}

func (t *tarball) dir(names ...string) {
	for _, n := range names {
		t.add(&tar.Header{Name: n, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
}

func (t *tarball) file(name string, body []byte) {
	t.add(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}, body)
}

func (t *tarball) add(h *tar.Header, body []byte) {
	if t.w == nil {
		t.w = tar.NewWriter(&t.buf)
	}
	if t.err == nil {
		t.err = t.w.WriteHeader(h)
	}
	if t.err == nil {
		_, t.err = t.w.Write(body)
	}
}

func (t *tarball) bytes() []byte {
	if err := t.w.Close(); t.err == nil {
		t.err = err
	}
	return t.buf.Bytes()
}

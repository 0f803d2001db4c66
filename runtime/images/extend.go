package images

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/core/mount"
	tarlayer "github.com/containerd/containerd/v2/pkg/archive"
	cfs "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/proto"
)

// WorkspaceLabel is a label of images whose /workspace is what new containers begin with. Other images may have files
// there too, which nobody sees.
const WorkspaceLabel = "berth.workspace"

// A NewLayer is what an image has beyond another one.
type NewLayer struct {
	Upper string // upper directory of an overlay over the other image, with the kernel's own marks; or
	Tree  string // a directory that is to be at At
	At    string // name in "/"
	// paths in Upper that are left out, with all below; absolute
	Without []string
}

// Export writes an OCI archive of the image of that digest with more layers.
func (i *Store) Export(ctx context.Context, digest, name string, more []NewLayer, w io.Writer) error {
	const op = "export image"
	full, err := FullName(op, name)
	if err != nil {
		return err
	}
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx))
	if err != nil {
		return i.fail(ctx, op, name, err)
	}
	defer done(context.WithoutCancel(ctx))
	ctx, enough := i.KeepReserve(ctx, op, name)
	defer enough()
	desc, err := i.extend(ctx, digest, more)
	if err == nil {
		err = archive.Export(ctx, i.cfg.Client.ContentStore(), w, archive.WithManifest(desc, full),
			archive.WithPlatform(platforms.All))
	}
	if err != nil {
		return i.fail(ctx, op, name, err)
	}
	return nil
}

// Commit stores the image of that digest with more layers under a name.
func (i *Store) Commit(ctx context.Context, digest, name string, more []NewLayer,
	progress func(proto.ImageProgress)) (proto.Image, error) {
	const op = "commit image"
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx))
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, name, err)
	}
	defer done(context.WithoutCancel(ctx))
	ctx, enough := i.KeepReserve(ctx, op, name)
	defer enough()
	report(progress, proto.ImageProgress{Stage: "writing"})
	desc, err := i.extend(ctx, digest, more)
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, name, err)
	}
	return i.install(ctx, op, name, desc, progress)
}

// extend stores the layers, and a configuration and a manifest that name them above those of the image. The lease of
// ctx keeps them.
func (i *Store) extend(ctx context.Context, digest string, more []NewLayer) (none ocispec.Descriptor, err error) {
	rec, err := i.cfg.Client.ImageService().Get(ctx, DigestName(digest))
	if errdefs.IsNotFound(err) {
		return none, noImage("export image", digest)
	}
	if err != nil {
		return none, err
	}
	mf, err := images.Manifest(ctx, i.documents(), rec.Target, platforms.All)
	if err != nil {
		return none, err
	}
	conf, err := i.config(ctx, rec.Target)
	if err != nil {
		return none, err
	}
	err = i.WithRoot(ctx, digest, func(root string) error {
		for _, l := range more {
			desc, err := i.storeLayer(ctx, root, l)
			if err != nil {
				return err
			}
			now := time.Now().UTC()
			mf.Layers, conf.RootFS.DiffIDs = append(mf.Layers, desc), append(conf.RootFS.DiffIDs, desc.Digest)
			conf.History = append(conf.History, ocispec.History{Created: &now, CreatedBy: "berth snapshot"})
			conf.Created = &now
		}
		return nil
	})
	if err != nil {
		return none, err
	}
	if conf.Config.Labels == nil {
		conf.Config.Labels = map[string]string{}
	}
	conf.Config.Labels[WorkspaceLabel] = "true"
	mf.Versioned, mf.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	if mf.Config, err = i.storeDocument(ctx, ocispec.MediaTypeImageConfig, conf); err != nil {
		return none, err
	}
	desc, err := i.storeDocument(ctx, mf.MediaType, mf)
	desc.Platform = &conf.Platform
	return desc, err
}

// storeDocument stores a JSON document.
func (i *Store) storeDocument(ctx context.Context, media string, v any) (desc ocispec.Descriptor, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return desc, err
	}
	desc = ocispec.Descriptor{MediaType: media, Digest: digest.FromBytes(text), Size: int64(len(text))}
	return desc, content.WriteBlob(ctx, i.cfg.Client.ContentStore(), "berth-"+uuid.NewString(), bytes.NewReader(text),
		desc)
}

// storeLayer stores a layer as a tar. It is not compressed: that would take most of the time.
func (i *Store) storeLayer(ctx context.Context, root string, l NewLayer) (desc ocispec.Descriptor, err error) {
	w, err := content.OpenWriter(ctx, i.cfg.Client.ContentStore(), content.WithRef("berth-"+uuid.NewString()))
	if err != nil {
		return desc, err
	}
	defer w.Close()
	size := &sizeWriter{Writer: w, ctx: ctx}
	if err := l.write(ctx, root, size); err != nil {
		return desc, fmt.Errorf("writing a layer: %w", err)
	}
	desc = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: w.Digest(), Size: size.n}
	err = w.Commit(ctx, desc.Size, desc.Digest)
	if errdefs.IsAlreadyExists(err) {
		err = nil
	}
	return desc, err
}

// A sizeWriter counts bytes, and ends with its context.
type sizeWriter struct {
	io.Writer
	ctx context.Context
	n   int64
}

func (s *sizeWriter) Write(b []byte) (int, error) {
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	n, err := s.Writer.Write(b)
	s.n += int64(n)
	return n, err
}

// write writes the layer over the image that is mounted at root.
func (l NewLayer) write(ctx context.Context, root string, w io.Writer) error {
	if l.Tree != "" {
		return writeTree(l.Tree, l.At, w)
	}
	tw := tarlayer.NewChangeWriter(w, l.Upper)
	err := cfs.DiffDirChanges(ctx, root, l.Upper, cfs.DiffSourceOverlayFS,
		func(k cfs.ChangeKind, path string, info fs.FileInfo, err error) error {
			for _, out := range l.Without {
				if path == out || strings.HasPrefix(path, out+"/") {
					return nil
				}
			}
			return tw.HandleChange(k, path, info, err)
		})
	if err != nil {
		return err
	}
	return tw.Close()
}

// writeTree writes all of the directory tree as /at. The directory at is the last part of its path.
func writeTree(tree, at string, w io.Writer) error {
	tw := tarlayer.NewChangeWriter(w, filepath.Dir(tree))
	err := filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return tw.HandleChange(cfs.ChangeKindAdd, "/"+at+strings.TrimPrefix(path, tree), info, nil)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// WithRoot calls fn with a directory where the files of an image can be read.
func (i *Store) WithRoot(ctx context.Context, digest string, fn func(root string) error) error {
	layers, err := i.chain(ctx, digest)
	if err != nil {
		return err
	}
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx))
	if err != nil {
		return err
	}
	defer done(context.WithoutCancel(ctx))
	sn, key := i.cfg.Client.SnapshotService(Snapshotter), "berth-root-"+uuid.NewString()
	mounts, err := sn.View(ctx, key, layers.Id)
	if err != nil {
		return fmt.Errorf("looking at the image's layers: %w", err)
	}
	defer removeView(context.WithoutCancel(ctx), sn, key)
	return mount.WithReadonlyTempMount(ctx, mounts, fn)
}

// FillWorkspace copies what an image has at /workspace into dir, if it is an image of a snapshot.
func (i *Store) FillWorkspace(ctx context.Context, digest, dir string) error {
	return i.WithRoot(ctx, digest, func(root string) error {
		from := filepath.Join(root, "workspace")
		if info, err := os.Lstat(from); err != nil || !info.IsDir() {
			return nil
		}
		return cfs.CopyDir(dir, from)
	})
}

// HasWorkspace reports whether containers of an image begin with what it has at /workspace.
func (i *Store) HasWorkspace(ctx context.Context, digest string) (bool, error) {
	layers, err := i.chain(ctx, digest)
	return layers.Workspace, err
}

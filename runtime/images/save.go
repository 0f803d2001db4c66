package images

import (
	"context"
	"encoding/json"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// SavedBytes returns about how many bytes Save writes.
func (i *Store) SavedBytes(ctx context.Context) (bytes int64, err error) {
	blobs := make(map[string]int64)
	recs, err := i.cfg.Client.ImageService().List(ns(ctx))
	if err != nil {
		return 0, err
	}
	for _, rec := range recs {
		mf, err := images.Manifest(ns(ctx), i.documents(), rec.Target, platforms.All)
		if err != nil {
			return 0, err
		}
		for _, l := range mf.Layers {
			blobs[l.Digest.String()] = l.Size
		}
	}
	for _, size := range blobs {
		bytes += size
	}
	return bytes, nil
}

// Save writes one OCI archive of all images, with their names, to w. Containers are bound to images by digest, so those
// without a name are among them. Load reads it.
func (i *Store) Save(ctx context.Context, w io.Writer) error {
	const op = "save images"
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx)) // what was there at the start stays until the end
	if err != nil {
		return i.fail(ctx, op, "", err)
	}
	defer done(context.WithoutCancel(ctx))
	recs, err := i.cfg.Client.ImageService().List(ctx)
	if err != nil {
		return i.fail(ctx, op, "", err)
	}
	names := make(map[string][]string) // by digest
	for _, rec := range recs {
		if digest := rec.Target.Digest.String(); !isDigestName(rec.Name) {
			names[digest] = append(names[digest], rec.Name)
		}
	}
	opts := []archive.ExportOpt{archive.WithPlatform(platforms.All), archive.WithSkipDockerManifest()}
	for _, rec := range recs {
		if isDigestName(rec.Name) {
			opts = append(opts, archive.WithManifest(rec.Target, names[rec.Target.Digest.String()]...))
		}
	}
	if err := archive.Export(ctx, i.cfg.Client.ContentStore(), w, opts...); err != nil {
		return i.fail(ctx, op, "", err)
	}
	return nil
}

// Load imports all images that Save has written, and names them as they were named. progress gets the names.
func (i *Store) Load(ctx context.Context, r io.Reader, progress func(name string)) error {
	const op = "load images"
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx))
	if err != nil {
		return i.fail(ctx, op, "", err)
	}
	defer done(context.WithoutCancel(ctx))
	index, err := i.ReadArchive(ctx, r)
	if err != nil {
		return i.ArchiveError(ctx, op, "", err)
	}
	text, err := content.ReadBlob(ctx, i.cfg.Client.ContentStore(), index)
	if err != nil {
		return i.fail(ctx, op, "", err)
	}
	var list ocispec.Index
	if err := json.Unmarshal(text, &list); err != nil {
		return i.ArchiveError(ctx, op, "", err)
	}
	for _, desc := range list.Manifests {
		name := desc.Annotations[images.AnnotationImageName]
		progress(ShortName(name))
		if err := i.load(ctx, op, name, desc); err != nil {
			return err
		}
	}
	i.cfg.Changed()
	return nil
}

// load unpacks one image and names it by its digest, and by name, unless that is empty.
func (i *Store) load(ctx context.Context, op, name string, desc ocispec.Descriptor) error {
	if err := i.unpack(ctx, op, name, desc, nil); err != nil {
		return err
	}
	if name == "" {
		_, err := i.nameImage(ctx, DigestName(desc.Digest.String()), desc)
		return err
	}
	_, err := i.nameBoth(ctx, name, desc)
	return err
}

package images

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/build/wire"
	"berth/proto"
)

// Manifest describes a stored image by its digest.
func (i *Store) Manifest(ctx context.Context, digest string) (wire.Found, error) {
	rec, err := i.cfg.Client.ImageService().Get(ns(ctx), DigestName(digest))
	if errdefs.IsNotFound(err) {
		return wire.Found{}, noImage("build", digest)
	}
	if err != nil {
		return wire.Found{}, i.fail(ctx, "build", digest, err)
	}
	return wire.Found{Digest: rec.Target.Digest.String(), MediaType: rec.Target.MediaType, Size: rec.Target.Size}, nil
}

// NameBuilt unpacks and names an image whose content a builder has stored. The builder's lease keeps the content
// meanwhile.
func (i *Store) NameBuilt(ctx context.Context, name string, built wire.Built,
	progress func(proto.ImageProgress)) (proto.Image, error) {
	const op = "build"
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx))
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, name, err)
	}
	defer done(context.WithoutCancel(ctx))
	ctx, enough := i.KeepReserve(ctx, op, name)
	defer enough()
	return i.install(ctx, op, name, ocispec.Descriptor{
		Digest: digest.Digest(built.Digest), MediaType: built.MediaType, Size: built.Size,
	}, progress)
}

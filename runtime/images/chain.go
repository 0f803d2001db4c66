package images

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	"github.com/opencontainers/image-spec/identity"

	"berth/proto"
)

// Layers is the part of an image that a sandbox uses.
type Layers struct {
	Id     string   // of the topmost snapshot
	Lowers []string // directories for the overlay, topmost first
	Env    []string

	Workspace bool // new containers begin with what the image has at /workspace
}

// byDigest caches facts about images. An image never changes under its digest.
type byDigest[T any] struct {
	mu sync.Mutex // guards m
	m  map[string]T
}

func (b *byDigest[T]) get(digest string) (T, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.m[digest]
	return found, ok
}

func (b *byDigest[T]) put(digest string, found T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m == nil {
		b.m = make(map[string]T)
	}
	b.m[digest] = found
}

func (b *byDigest[T]) drop(digest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.m, digest)
}

// Pin finds the unpacked layers of an image and keeps them from Sweep until the caller calls unlock. Before that the
// caller writes the container record, which keeps them from then on.
func (i *Store) Pin(ctx context.Context, digest string) (layers Layers, unlock func(), err error) {
	unlock, err = i.locks.Lock(ctx, digest)
	if err != nil {
		return layers, nil, err
	}
	if layers, err = i.chain(ctx, digest); err != nil {
		unlock()
		return layers, nil, err
	}
	return layers, unlock, nil
}

// chain finds the unpacked layers of an image.
func (i *Store) chain(ctx context.Context, digest string) (Layers, error) {
	if info, ok := i.chains.get(digest); ok {
		return info, nil
	}
	ctx = ns(ctx)
	rec, err := i.cfg.Client.ImageService().Get(ctx, DigestName(digest))
	if errdefs.IsNotFound(err) {
		return Layers{}, proto.Errorf(proto.NotFound, "start", digest,
			"image %.80q is not here any more; import or pull it again", digest)
	}
	if err != nil {
		return Layers{}, fmt.Errorf("finding the image: %w", err)
	}
	info, err := i.inspect(ctx, rec)
	if err == nil {
		i.chains.put(digest, info)
	}
	return info, err
}

func (i *Store) inspect(ctx context.Context, rec images.Image) (Layers, error) {
	conf, err := i.config(ctx, rec.Target)
	if err != nil {
		return Layers{}, fmt.Errorf("reading the image's configuration: %w", err)
	}
	info := Layers{Id: identity.ChainID(conf.RootFS.DiffIDs).String(), Env: conf.Config.Env,
		Workspace: conf.Config.Labels[WorkspaceLabel] == "true"}
	info.Lowers, err = i.lowers(ctx, info.Id)
	return info, err
}

// lowers asks the snapshotter for the directories of a chain. The snapshotter returns them only when a view is made.
// The directories stay in place as long as the chain exists.
func (i *Store) lowers(ctx context.Context, chain string) ([]string, error) {
	ctx, done, err := i.cfg.Client.WithLease(ctx)
	if err != nil {
		return nil, err
	}
	defer done(context.WithoutCancel(ctx))
	sn := i.cfg.Client.SnapshotService(Snapshotter)
	// images may share a chain; a view that a killed daemon leaves is removed with its lease
	key := "berth-view-" + uuid.NewString()
	mounts, err := sn.View(ctx, key, chain)
	if err != nil {
		return nil, fmt.Errorf("looking at the image's layers: %w", err)
	}
	defer removeView(context.WithoutCancel(ctx), sn, key)
	for _, m := range mounts {
		if m.Type == "bind" { // a single layer
			return []string{m.Source}, nil
		}
		for _, o := range m.Options {
			if dirs, ok := strings.CutPrefix(o, "lowerdir="); ok {
				return strings.Split(dirs, ":"), nil
			}
		}
	}
	return nil, fmt.Errorf("the snapshotter gave no layers: %v", mounts)
}

// removeView removes a view. If that fails, only the name of the view is left.
func removeView(ctx context.Context, sn snapshots.Snapshotter, key string) { _ = sn.Remove(ctx, key) }

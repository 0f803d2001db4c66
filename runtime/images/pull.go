package images

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"berth/proto"
	"berth/proto/span"
)

const (
	// fetches is how many layers are fetched in parallel, as in most clients.
	fetches = 3
	// fetchReport is the interval between two reports of a pull. Human readers do not need more.
	fetchReport = 250 * time.Millisecond
)

// Pull fetches an image from its registry. See session.Images. Registries on this machine may speak plain HTTP; all
// others must speak TLS.
func (i *Store) Pull(ctx context.Context, ref string, progress func(proto.ImageProgress)) (img proto.Image,
	err error) {
	ctx, sp := span.Start(ctx, "image.pull")
	sp.String(span.ImageName, ref)
	defer func() { sp.End(err) }()
	return i.pull(ctx, ref, progress)
}

// pull does the work of Pull.
func (i *Store) pull(ctx context.Context, ref string, progress func(proto.ImageProgress)) (proto.Image, error) {
	const op = "pull image"
	full, err := FullName(op, ref)
	if err != nil || isDigestName(ref) {
		return proto.Image{}, badName(op, ref)
	}
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx))
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, ref, err)
	}
	defer done(context.WithoutCancel(ctx))
	ctx, enough := i.KeepReserve(ctx, op, ref)
	defer enough()
	// before the request to the registry, which may take long and whose failure is not the caller's mistake
	if progress != nil {
		progress(proto.ImageProgress{Stage: "resolving", Item: ref})
	}
	desc, err := i.fetch(ctx, full, progress)
	if err != nil {
		return proto.Image{}, i.pullError(ctx, op, ref, err)
	}
	found, err := i.PickManifest(ctx, desc)
	if err != nil {
		return proto.Image{}, i.pullError(ctx, op, ref, err)
	}
	return i.install(ctx, op, ref, found.desc, progress)
}

// fetch stores the content of ref for this machine.
func (i *Store) fetch(ctx context.Context, ref string, progress func(proto.ImageProgress)) (ocispec.Descriptor,
	error) {
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: i.sources()})
	name, desc, err := resolver.Resolve(ctx, ref)
	if err != nil {
		return desc, err
	}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return desc, err
	}
	cs := i.cfg.Client.ContentStore()
	var seen blobs
	note := images.HandlerFunc(func(_ context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		seen.add(d)
		return nil, nil
	})
	children := images.FilterPlatforms(documents{cs}.children, ourPlatform())
	children = images.LimitManifests(children, ourPlatform(), 1)

	stop := watchFetch(ctx, cs, &seen, progress)
	defer stop()
	return desc, images.Dispatch(ctx, images.Handlers(note, remotes.FetchHandler(cs, fetcher), children),
		semaphore.NewWeighted(fetches), desc)
}

// blobs lists the parts of an image that a fetch has seen so far.
type blobs struct {
	mu  sync.Mutex // guards all
	all []ocispec.Descriptor
}

func (b *blobs) add(d ocispec.Descriptor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, d)
}

func (b *blobs) snapshot() []ocispec.Descriptor {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[:len(b.all):len(b.all)]
}

// watchFetch reports the progress of every layer until the caller calls the returned function.
func watchFetch(ctx context.Context, cs content.Store, seen *blobs, progress func(proto.ImageProgress)) func() {
	return every(progress, func() { reportFetch(ctx, cs, seen, progress) })
}

// every calls fn at each interval of fetchReport until the caller calls the returned function, which calls it once
// more. Without a progress function it does nothing.
func every(progress func(proto.ImageProgress), fn func()) (stop func()) {
	if progress == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(fetchReport)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				fn()
				return
			case <-tick.C:
				fn()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// reportFetch reports how much of every layer is stored. A layer whose fetch has not begun counts as 0.
func reportFetch(ctx context.Context, cs content.Store, seen *blobs, progress func(proto.ImageProgress)) {
	for _, d := range seen.snapshot() {
		if !images.IsLayerType(d.MediaType) {
			continue
		}
		p := proto.ImageProgress{Stage: "fetching", Item: shortDigest(d.Digest.String()), Total: d.Size}
		if st, err := cs.Status(ctx, remotes.MakeRefKey(ctx, d)); err == nil {
			p.Done = st.Offset
		} else if _, err := cs.Info(ctx, d.Digest); err == nil {
			p.Done = d.Size
		}
		progress(p)
	}
}

// pullError converts a registry's answer to an error that the caller can act on.
func (i *Store) pullError(ctx context.Context, op, ref string, err error) error {
	var known *proto.Error
	var network net.Error
	switch {
	case errors.As(context.Cause(ctx), &known): // from KeepReserve
		return known
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &known):
		return err
	case DiskFull(err):
		return proto.Errorf(proto.QuotaExceeded, op, ref, "the disk of the data directory is full")
	case errdefs.IsNotFound(err):
		return proto.Errorf(proto.NotFound, op, ref, "the registry has no image %.80q", ref)
	case isRefused(err), hasStatus(err, http.StatusUnauthorized, http.StatusForbidden):
		return i.refused(op, ref, "this image")
	}
	i.cfg.Log.Warn("pulling an image", "image", ref, "err", err)
	if errors.As(err, &network) {
		return proto.Errorf(proto.Unavailable, op, ref,
			"the registry of %.80q cannot be reached; import an archive instead", ref)
	}
	return proto.Errorf(proto.Unavailable, op, ref, "the registry did not deliver %.80q; try again later", ref)
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	ctd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/gc"
	"github.com/containerd/platforms"
	"github.com/moby/buildkit/cache/metadata"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/session"
	containerdsnapshot "github.com/moby/buildkit/snapshot/containerd"
	"github.com/moby/buildkit/solver"
	"github.com/moby/buildkit/solver/pb"
	"github.com/moby/buildkit/source"
	"github.com/moby/buildkit/source/containerimage"
	httpsource "github.com/moby/buildkit/source/http"
	"github.com/moby/buildkit/util/leaseutil"
	"github.com/moby/buildkit/worker/base"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"berth/build/wire"
)

// A stepWorker is BuildKit's worker over the daemon's containerd. It has no network of its own: the daemon gets images,
// and files of ADD come through the proxy of the build.
type stepWorker struct {
	*base.Worker
	images *askedImages
	client *ctd.Client
}

// openWorker connects to containerd and opens the cache of the job's owner.
func openWorker(ctx context.Context, job wire.Job, d *daemon) (*stepWorker, error) {
	cl, err := ctd.New(job.Containerd, ctd.WithDefaultNamespace(job.Namespace), ctd.WithTimeout(10*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connecting to containerd: %w", err)
	}
	if err := os.MkdirAll(job.Root, 0o700); err != nil {
		return nil, err
	}
	md, err := metadata.NewStore(filepath.Join(job.Root, "metadata.db"))
	if err != nil {
		return nil, err
	}
	manager := ownedLeases{cl.LeasesService(), "berth/build-owner", job.Owner}
	lm := leaseutil.WithNamespace(manager, job.Namespace)
	cs := containerdsnapshot.NewContentStore(cl.ContentStore(), job.Namespace)
	asked := &askedImages{Store: cl.ImageService(), daemon: d, known: map[string]images.Image{}}
	opt := base.WorkerOpt{
		ID: "berth", Root: job.Root, MetadataStore: md, LeaseManager: lm, ContentStore: cs, ImageStore: asked,
		Labels:    map[string]string{},
		Platforms: []ocispec.Platform{platforms.Normalize(platforms.DefaultSpec())},
		Snapshotter: containerdsnapshot.NewSnapshotter(job.Snapshots, sharedLayers{cl.SnapshotService(job.Snapshots)},
			job.Namespace, nil),
		Applier: cl.DiffService(), Differ: cl.DiffService(),
		Executor:       &executorOf{daemon: d},
		RegistryHosts:  d.noRegistry,
		ParallelismSem: semaphore.NewWeighted(max(job.Parallel, 1)),
		MountPoolRoot:  filepath.Join(job.Scratch, "mounts"),
		GarbageCollect: func(ctx context.Context) (gc.Stats, error) {
			l, err := lm.Create(ctx, leases.WithRandomID())
			if err != nil {
				return nil, err
			}
			return nil, lm.Delete(ctx, l, leases.SynchronousDelete)
		},
	}
	w, err := base.NewWorker(ctx, opt)
	if err != nil {
		return nil, fmt.Errorf("opening the cache: %w", err)
	}
	return &stepWorker{w, asked, cl}, withoutNetwork(w, d)
}

// Close closes the cache.
func (w *stepWorker) Close() error {
	defer w.client.Close()
	return w.Worker.Close()
}

// withoutNetwork replaces the sources that would open connections.
func withoutNetwork(w *base.Worker, d *daemon) error {
	transport := &http.Transport{
		Proxy:       func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy") },
		DialContext: d.proxied,
	}
	hs, err := httpsource.NewSource(httpsource.Opt{CacheAccessor: w.CacheMgr, Transport: transport})
	if err != nil {
		return err
	}
	w.HTTPSource, w.GitSource = hs, nil
	w.SourceManager.Register(hs)
	w.SourceManager.Register(noGit{})
	return nil
}

// noGit refuses repositories: git would run here, as the host's root and on its network.
type noGit struct{}

func (noGit) Schemes() []string { return []string{"git"} }

func (noGit) Identifier(_, ref string, _ map[string]string, _ *pb.Platform) (source.Identifier, error) {
	return nil, unsupported("ADD of the git repository %.200q is not supported; clone it in a RUN step, or put it "+
		"into the build context", ref)
}

func (noGit) Resolve(context.Context, source.Identifier, *session.Manager, solver.Vertex) (source.SourceInstance,
	error) {
	return nil, unsupported("ADD of a git repository is not supported")
}

// ResolveSourceMetadata has the daemon get an image first, under the name and digest that the Dockerfile gives.
func (w *stepWorker) ResolveSourceMetadata(ctx context.Context, op *pb.SourceOp, opt sourceresolver.Opt,
	sm *session.Manager, jobCtx solver.JobContext) (*sourceresolver.MetaResponse, error) {
	id, err := w.ParseSource(op, nil)
	if err != nil {
		return nil, err
	}
	if image, ok := id.(*containerimage.ImageIdentifier); ok {
		if err := checkPlatform(image.Reference.String(), opt.ImageOpt); err != nil {
			return nil, err
		}
		if err := w.images.have(ctx, image.Reference.String()); err != nil {
			return nil, err
		}
	}
	return w.Worker.ResolveSourceMetadata(ctx, op, opt, sm, jobCtx)
}

// checkPlatform refuses an image of another platform: the daemon stores images of its own alone, and would give that.
func checkPlatform(ref string, opt *sourceresolver.ResolveImageOpt) error {
	if opt == nil || opt.Platform == nil {
		return nil
	}
	ours := platforms.Normalize(platforms.DefaultSpec())
	if platforms.NewMatcher(platforms.Normalize(*opt.Platform)).Match(ours) {
		return nil
	}
	return unsupported("FROM --platform=%s %.200s: this daemon builds for %s alone",
		platforms.Format(*opt.Platform), ref, platforms.Format(ours))
}

// askedImages is the daemon's image store. It asks the daemon for images that BuildKit looks up.
type askedImages struct {
	images.Store
	daemon *daemon

	mu    sync.Mutex // guards known
	known map[string]images.Image
}

// have gets an image by its whole reference, and keeps it under the name without a digest, by which BuildKit asks.
func (s *askedImages) have(ctx context.Context, ref string) error {
	found, err := s.daemon.image(ctx, ref)
	if err != nil {
		return err
	}
	name := localName(ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = images.Image{Name: name, Target: ocispec.Descriptor{
		Digest: digest.Digest(found.Digest), MediaType: found.MediaType, Size: found.Size,
	}}
	return nil
}

// Get returns an image. It implements images.Store.
func (s *askedImages) Get(ctx context.Context, name string) (images.Image, error) {
	s.mu.Lock()
	img, ok := s.known[name]
	s.mu.Unlock()
	if ok {
		return img, nil
	}
	if err := s.have(ctx, name); err != nil {
		return images.Image{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name], nil
}

// ownedLeases are the leases of one owner. BuildKit deletes temporary leases that it finds at its start, and another
// owner's build may need those.
type ownedLeases struct {
	leases.Manager
	label, owner string
}

// Create implements leases.Manager.
func (l ownedLeases) Create(ctx context.Context, opts ...leases.Opt) (leases.Lease, error) {
	return l.Manager.Create(ctx, append(opts, func(lease *leases.Lease) error {
		if lease.Labels == nil {
			lease.Labels = map[string]string{}
		}
		lease.Labels[l.label] = l.owner
		return nil
	})...)
}

// List implements leases.Manager.
func (l ownedLeases) List(ctx context.Context, filters ...string) ([]leases.Lease, error) {
	own := fmt.Sprintf("labels.%q==%q", l.label, l.owner)
	if len(filters) == 0 {
		return l.Manager.List(ctx, own)
	}
	narrowed := make([]string, len(filters))
	for i, f := range filters {
		narrowed[i] = own + "," + f
	}
	return l.Manager.List(ctx, narrowed...)
}

package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/proto"
	"berth/proto/span"
	"berth/state/keylock"
)

// ourPlatform matches exactly this machine's platform. A 32-bit image would run here too, but no caller wants that.
func ourPlatform() platforms.MatchComparer { return platforms.OnlyStrict(platforms.DefaultSpec()) }

// A Config has what a Store works with. Changed and Release are required.
type Config struct {
	Client *client.Client
	Log    *slog.Logger
	Dir    string // the data directory; images keep a reserve free on its disk
	Shared bool   // other programs may change the images of this containerd

	Changed func()                                   // called after names of images have changed
	Release func(ctx context.Context, digest string) // removes the pooled sandboxes of an image before its removal
}

// A Store holds the images of a Runtime, unpacked. It is a session.Images, as package containerd checks.
type Store struct {
	cfg         Config
	locks       keylock.Set // by digest
	chains      byDigest[Layers]
	contents    byDigest[imageContent]
	resolved    resolved
	credentials Credentials // nil: there are none
	mirrors     Mirrors
	Reserve     int64 // bytes that images leave free; see hasReserve
}

// New makes a Store.
func New(cfg Config) *Store { return &Store{cfg: cfg, Reserve: reserveOf(cfg.Dir)} }

// ns returns ctx with our containerd namespace.
func ns(ctx context.Context) context.Context { return namespaces.WithNamespace(ctx, Namespace) }

// fail logs err and returns the error for the caller. It passes on our own errors, and the error of ctx if the caller
// has gone.
func (i *Store) fail(ctx context.Context, op, item string, err error) error {
	var known *proto.Error
	if errors.As(err, &known) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	i.cfg.Log.Error("image store", "op", op, "item", item, "err", err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return proto.Errorf(proto.TimedOut, op, item, "%s took too long; the daemon's log has more", op)
	case DiskFull(err):
		return proto.Errorf(proto.QuotaExceeded, op, item,
			"the disk pool is full; delete containers, workspaces or images")
	}
	return proto.Errorf(proto.Internal, op, item, "%s failed; the daemon's log has more", op)
}

// Resolve finds an image by name or digest. See session.Images.
func (i *Store) Resolve(ctx context.Context, ref string) (proto.Image, error) {
	img, changes, ok := i.resolved.get(ref)
	if ok {
		return img, nil
	}
	img, err := i.lookUp(ctx, ref)
	if err == nil && !i.cfg.Shared { // in a shared containerd other programs may change the image
		i.resolved.put(ref, img, changes)
	}
	return img, err
}

// lookUp asks containerd for the image ref.
func (i *Store) lookUp(ctx context.Context, ref string) (proto.Image, error) {
	name, err := FullName("resolve image", ref)
	if err != nil {
		return proto.Image{}, err
	}
	ctx = ns(ctx)
	rec, err := i.cfg.Client.ImageService().Get(ctx, name)
	if errdefs.IsNotFound(err) {
		return proto.Image{}, noImage("resolve image", ref)
	}
	if err != nil {
		return proto.Image{}, i.fail(ctx, "resolve image", ref, err)
	}
	img, err := i.describe(ctx, rec)
	if err != nil {
		return proto.Image{}, i.fail(ctx, "resolve image", ref, err)
	}
	return img, nil
}

// noImage returns the error for an unknown image.
func noImage(op, ref string) error {
	return proto.Errorf(proto.NotFound, op, ref,
		"there is no image %.80q; get it with berth image import, pull or build", ref)
}

// List lists the named images, sorted by name. See session.Images.
func (i *Store) List(ctx context.Context) ([]proto.Image, error) {
	ctx = ns(ctx)
	recs, err := i.cfg.Client.ImageService().List(ctx)
	if err != nil {
		return nil, i.fail(ctx, "list images", "", err)
	}
	var out []proto.Image
	for _, rec := range recs {
		if isDigestName(rec.Name) {
			continue
		}
		img, err := i.describe(ctx, rec)
		if err != nil {
			return nil, i.fail(ctx, "list images", ShortName(rec.Name), err)
		}
		out = append(out, img)
	}
	slices.SortFunc(out, func(a, b proto.Image) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Import imports an image archive. See session.Images.
func (i *Store) Import(ctx context.Context, name string, in io.Reader, progress func(proto.ImageProgress)) (
	img proto.Image, err error) {
	ctx, sp := span.Start(ctx, "image.import")
	defer func() { sp.String(span.ImageName, img.Name); sp.End(err) }()
	return i.importArchive(ctx, name, in, progress)
}

// importArchive does the work of Import.
func (i *Store) importArchive(ctx context.Context, name string, in io.Reader, progress func(proto.ImageProgress)) (
	proto.Image, error) {
	const op = "import image"
	if name != "" {
		if _, err := FullName(op, name); err != nil || isDigestName(name) {
			return proto.Image{}, badName(op, name)
		}
	}
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx))
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, name, err)
	}
	defer done(context.WithoutCancel(ctx))
	ctx, enough := i.KeepReserve(ctx, op, name)
	defer enough()
	count := &counter{in: in, progress: progress}
	index, err := i.ReadArchive(ctx, count)
	if err != nil {
		return proto.Image{}, i.ArchiveError(ctx, op, name, err)
	}
	report(progress, proto.ImageProgress{Stage: "importing", Done: count.done, Total: count.done})
	found, err := i.PickManifest(ctx, index)
	if err != nil {
		return proto.Image{}, i.ArchiveError(ctx, op, name, err)
	}
	if name == "" {
		// The daemon's own images have short names, whether they were sent by "image build" or come from a file.
		if name = strings.TrimPrefix(found.name, proto.OwnImages); name == "" {
			return proto.Image{}, proto.Errorf(proto.InvalidArgument, op, "name",
				"the archive does not name its image; give it a name")
		}
	}
	return i.install(ctx, op, name, found.desc, progress)
}

// ReadArchive stores the content of an archive and returns its index.
func (i *Store) ReadArchive(ctx context.Context, in io.Reader) (ocispec.Descriptor, error) {
	plain, err := compression.DecompressStream(in)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer plain.Close()
	in, done := judged(whileWanted{ctx, plain})
	defer done()
	return archive.ImportIndex(ctx, &Archived{Store: i.cfg.Client.ContentStore()}, in)
}

// ArchiveError returns the error for the caller of a failed import. It blames the archive, unless the caller has gone
// or the disk is full.
func (i *Store) ArchiveError(ctx context.Context, op, name string, err error) error {
	var known *proto.Error
	if errors.As(context.Cause(ctx), &known) { // from KeepReserve
		return known
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.As(err, &known) {
		return err
	}
	if DiskFull(err) {
		return proto.Errorf(proto.QuotaExceeded, op, name, "the disk of the data directory is full")
	}
	i.cfg.Log.Warn("reading an image archive", "image", name, "err", err)
	return proto.Errorf(proto.InvalidArgument, op, name,
		"this is not a whole OCI or Docker image archive (a tar, plain or compressed with gzip or zstd)")
}

// A manifest is one image in an index.
type manifest struct {
	name string // from the index; may be empty
	desc ocispec.Descriptor
}

// PickManifest finds the one image in index for this machine. It refuses an archive of several images.
func (i *Store) PickManifest(ctx context.Context, index ocispec.Descriptor) (manifest, error) {
	s := search{i: i, met: make(map[digest.Digest]bool), found: make(map[digest.Digest]manifest)}
	if err := s.collect(ctx, index, "", 0); err != nil {
		return manifest{}, err
	}
	all := slices.Collect(maps.Values(s.found))
	switch len(all) {
	case 1:
		return all[0], nil
	case 0:
		return manifest{}, proto.Errorf(proto.Unsupported, "reading the image", "",
			"there is no image for %s in it", platforms.Format(platforms.DefaultSpec()))
	}
	return manifest{}, proto.Errorf(proto.InvalidArgument, "reading the image", "",
		"there are %d images in it; give one at a time", len(all))
}

const (
	// MaxNesting bounds indexes within indexes; real ones have two levels.
	MaxNesting = 4
	// MaxDescriptors bounds the descriptors in all indexes of an image, repetitions included.
	MaxDescriptors = 4096
)

// tooMany returns the error for an image with more descriptors than that.
func tooMany() error {
	return proto.Errorf(proto.InvalidArgument, "reading the image", "",
		"more than %d images are named in it; save the one that you want by itself", MaxDescriptors)
}

// A search looks through an index for the manifests that fit this machine.
type search struct {
	i     *Store
	count int                        // descriptors so far
	met   map[digest.Digest]bool     // digests read so far, and whether each had a name then
	found map[digest.Digest]manifest // for each digest the first manifest with a name
}

// collect walks an index and gathers the manifests for this machine, by digest. Indexes may name each other any
// number of times. collect reads each once, and again only if it had no name the first time.
func (s *search) collect(ctx context.Context, desc ocispec.Descriptor, name string, depth int) error {
	desc = unembedded(desc)
	if n := imageNameOf(desc); n != "" {
		name = n
	}
	isIndex := images.IsIndexType(desc.MediaType)
	s.count++
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.count > MaxDescriptors:
		return tooMany()
	case depth > MaxNesting:
		return errors.New("the image's indexes are nested too deeply")
	case desc.Platform != nil && !ourPlatform().Match(*desc.Platform):
		return nil
	case !isIndex && !images.IsManifestType(desc.MediaType):
		return nil
	case !s.meet(desc.Digest, name):
		return nil
	case isIndex:
		return s.collectIndex(ctx, desc, name, depth)
	}
	return s.collectManifest(ctx, desc, name)
}

// meet records a digest, and reports whether it must be read.
func (s *search) meet(d digest.Digest, name string) bool {
	named, met := s.met[d]
	if met && (named || name == "") {
		return false
	}
	s.met[d] = name != ""
	return true
}

// collectIndex gathers the manifests that an index names.
func (s *search) collectIndex(ctx context.Context, desc ocispec.Descriptor, name string, depth int) error {
	children, err := s.i.documents().children(ctx, desc)
	if err != nil {
		return err
	}
	for _, c := range children {
		if err := s.collect(ctx, c, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// collectManifest keeps a manifest whose configuration is for this machine. The platform in an index is optional and
// not trusted.
func (s *search) collectManifest(ctx context.Context, desc ocispec.Descriptor, name string) error {
	conf, err := s.i.config(ctx, desc)
	if errdefs.IsNotFound(err) {
		return nil // an archive for one platform may contain the index of all platforms
	}
	if err != nil {
		return err
	}
	if ourPlatform().Match(conf.Platform) {
		s.found[desc.Digest] = manifest{name: name, desc: desc}
	}
	return nil
}

// imageNameOf returns the image's name in an archive. containerd's annotation has the whole name; OCI's may be a tag
// only.
func imageNameOf(desc ocispec.Descriptor) string {
	if n := desc.Annotations[images.AnnotationImageName]; n != "" {
		return n
	}
	return desc.Annotations[ocispec.AnnotationRefName]
}

// install unpacks a manifest whose content is stored, and names it. It moves the name last, so a name never points at
// an image that cannot be started.
func (i *Store) install(ctx context.Context, op, name string, desc ocispec.Descriptor,
	progress func(proto.ImageProgress)) (proto.Image, error) {
	full, err := FullName(op, name)
	if err != nil || isDigestName(full) { // a digest as a name would move a pinned image
		return proto.Image{}, badName(op, name)
	}
	if err := i.unpack(ctx, op, name, desc, progress); err != nil {
		return proto.Image{}, err
	}
	rec, err := i.nameBoth(ctx, full, desc)
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, name, err)
	}
	i.cfg.Changed()
	out, err := i.describe(ctx, rec)
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, name, err)
	}
	report(progress, proto.ImageProgress{Stage: "done", Item: shortDigest(out.Digest), Done: out.SizeBytes,
		Total: out.SizeBytes})
	return out, nil
}

// unpack checks and unpacks a manifest whose content is stored. The content then lasts as long as the manifest.
func (i *Store) unpack(ctx context.Context, op, name string, desc ocispec.Descriptor,
	progress func(proto.ImageProgress)) error {
	if err := i.checkImage(ctx, op, name, desc); err != nil {
		return err
	}
	keep := images.SetChildrenLabels(i.cfg.Client.ContentStore(), i.documents().children)
	if _, err := keep(ctx, desc); err != nil { // a manifest's children have no children themselves
		return i.ArchiveError(ctx, op, name, err)
	}
	report(progress, proto.ImageProgress{Stage: "unpacking", Item: shortDigest(desc.Digest.String())})
	img := client.NewImageWithPlatform(i.cfg.Client, images.Image{Target: desc}, platforms.All)
	if err := img.Unpack(ctx, Snapshotter); err != nil {
		return i.ArchiveError(ctx, op, name, fmt.Errorf("unpacking: %w", err))
	}
	return nil
}

// nameBoth gives an image its name and its digest's name. No sweep runs in between.
func (i *Store) nameBoth(ctx context.Context, name string, desc ocispec.Descriptor) (rec images.Image, err error) {
	digest := DigestName(desc.Digest.String())
	unlock, err := i.locks.Lock(ctx, digest)
	if err != nil {
		return rec, err
	}
	defer unlock()
	for _, n := range []string{digest, name} {
		if rec, err = i.nameImage(ctx, n, desc); err != nil {
			return rec, err
		}
	}
	return rec, nil
}

// nameImage makes the record name point at desc.
func (i *Store) nameImage(ctx context.Context, name string, desc ocispec.Descriptor) (images.Image, error) {
	// Annotations come from the archive, and we do not need them.
	rec := images.Image{Name: name, Target: ocispec.Descriptor{
		MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size,
	}}
	defer i.resolved.forget()
	out, err := i.cfg.Client.ImageService().Create(ctx, rec)
	if errdefs.IsAlreadyExists(err) {
		return i.cfg.Client.ImageService().Update(ctx, rec, "target")
	}
	return out, err
}

// Remove removes a name. See session.Images. The image itself stays until Sweep, for sessions that have pinned its
// digest.
func (i *Store) Remove(ctx context.Context, ref string) error {
	const op = "remove image"
	name, err := FullName(op, ref)
	if err != nil {
		return noImage(op, ref) // an invalid name names no image
	}
	if isDigestName(name) {
		return proto.Errorf(proto.InvalidArgument, op, ref, "%.80s is what an image holds, not its name; it goes by "+
			"itself once it has no name and no container needs it", ref)
	}
	err = i.cfg.Client.ImageService().Delete(ns(ctx), name)
	i.resolved.forget()
	if errdefs.IsNotFound(err) {
		return noImage(op, ref)
	}
	if err != nil {
		return i.fail(ctx, op, ref, err)
	}
	i.cfg.Changed()
	return nil
}

// Sweep removes every image without a name that no sandbox uses and whose digest is not in keep. It returns their
// digests. keep has the digests that sessions have pinned which may start again.
func (i *Store) Sweep(ctx context.Context, keep []string) ([]string, error) {
	const op = "sweep images"
	ctx = ns(ctx)
	recs, err := i.cfg.Client.ImageService().List(ctx)
	if err != nil {
		return nil, i.fail(ctx, op, "", err)
	}
	named := digestsOf(recs)
	var swept []string
	for _, rec := range recs {
		if !isDigestName(rec.Name) || named[rec.Name] || slices.Contains(keep, rec.Name) {
			continue
		}
		gone, err := i.sweepImage(ctx, rec.Name)
		if err != nil {
			return swept, i.fail(ctx, op, rec.Name, err)
		}
		if gone {
			swept = append(swept, rec.Name)
		}
	}
	return swept, nil
}

// digestsOf returns the digests that names point at.
func digestsOf(recs []images.Image) map[string]bool {
	named := make(map[string]bool)
	for _, rec := range recs {
		if !isDigestName(rec.Name) {
			named[rec.Target.Digest.String()] = true
		}
	}
	return named
}

// NamedDigests returns the digests of all images with a name.
func (i *Store) NamedDigests(ctx context.Context) (map[string]bool, error) {
	recs, err := i.cfg.Client.ImageService().List(ns(ctx))
	return digestsOf(recs), err
}

// sweepImage removes one digest, unless a sandbox uses it. Start holds the same lock from its look-up of the image
// until it has written the record that pins it.
func (i *Store) sweepImage(ctx context.Context, digest string) (bool, error) {
	unlock, err := i.locks.Lock(ctx, digest)
	if err != nil {
		return false, err
	}
	defer unlock()
	if named, err := i.NamedDigests(ctx); named[digest] || err != nil { // may have been named a moment ago
		return false, err
	}
	i.cfg.Release(ctx, digest)
	users, err := i.cfg.Client.ContainerService().List(ctx, fmt.Sprintf("image==%q", digest))
	if err != nil || len(users) > 0 {
		return false, err
	}
	i.chains.drop(digest)
	i.contents.drop(digest)
	err = i.cfg.Client.ImageService().Delete(ctx, digest, images.SynchronousDelete())
	i.resolved.forget()
	if errdefs.IsNotFound(err) {
		err = nil
	}
	return err == nil, err
}

// describe converts a record to the caller's form.
func (i *Store) describe(ctx context.Context, rec images.Image) (proto.Image, error) {
	c, err := i.contentOf(ctx, rec)
	if err != nil {
		return proto.Image{}, err
	}
	return proto.Image{
		Name: ShortName(rec.Name), Digest: rec.Target.Digest.String(), CreatedAt: rec.UpdatedAt.UTC(),
		Platform: c.platform, SizeBytes: c.size, Template: c.template,
	}, nil
}

// imageContent has facts from an image's own files. They never change for a digest.
type imageContent struct {
	platform string
	size     int64 // of the layers, in bytes
	template proto.ImageTemplate
}

// maxFacts bounds the label of a template, which is in memory, in bytes.
const maxFacts = 64 << 10

// templateOf returns what the configuration of an image says of it as a template.
func templateOf(conf ocispec.Image) (t proto.ImageTemplate) {
	if facts := conf.Config.Labels[proto.TemplateLabel]; facts != "" && len(facts) <= maxFacts {
		t = proto.ImageTemplate{Facts: facts, User: conf.Config.User, Dir: conf.Config.WorkingDir}
	}
	return t
}

// contentOf returns the imageContent of rec. It reads the files once for each digest: every create asks for it, and
// reading took a fifth of the time of a create.
func (i *Store) contentOf(ctx context.Context, rec images.Image) (imageContent, error) {
	digest := rec.Target.Digest.String()
	if c, ok := i.contents.get(digest); ok {
		return c, nil
	}
	mf, err := images.Manifest(ctx, i.documents(), rec.Target, platforms.All)
	if err != nil {
		return imageContent{}, err
	}
	conf, err := i.config(ctx, rec.Target)
	if err != nil {
		return imageContent{}, err
	}
	c := imageContent{platform: platforms.Format(platforms.Normalize(conf.Platform)), template: templateOf(conf)}
	for _, l := range mf.Layers {
		c.size += l.Size
	}
	i.contents.put(digest, c)
	return c, nil
}

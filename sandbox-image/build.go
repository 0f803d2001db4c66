// Package sandboximage says what is inside berth's own images and builds them from Debian packages, without a
// registry.
//
// An image is data: a directory of this package holds its definition.
//
//	base/packages.txt   Debian packages, with comments
//	base/wheels.txt     Python packages, pinned with the hashes of their wheels; optional
//	base/env.txt        the environment in the image's config
//	base/dpkg.cfg       paths that dpkg leaves out
//	base/files/         files copied over the installed packages
//	base/prepare.sh     run inside, once a shell is there
//	base/setup.sh       run inside, last: users, links, caches, cleaning
//
// A build resolves the packages with the host's own apt (its mirrors, proxies and keys, but Debian 12 only),
// downloads them into a cache, has mmdebstrap install exactly those from a local directory, and packs the tree as an
// OCI archive of one layer. The host's pip downloads the wheels, and the image's installs them, without network.
// Nothing of the host's configuration enters the image, and the same packages give the same digest.
//
// An image may add to another. Each directory of its definition becomes one layer, in the order of their numbers:
//
//	full/from.txt               the image that it adds to
//	full/env.txt                environment, beyond that image's
//	full/1-media/packages.txt   Debian packages, with comments
//	full/1-media/wheels.txt     Python packages, pinned with the hashes of their wheels
//	full/1-media/package.json   modules of npm, pinned with hashes by package-lock.json
//	full/1-media/files/         files copied over that
//	full/1-media/prepare.sh     run inside, first
//	full/1-media/setup.sh       run inside, last
//
// All is optional. What a layer needs is downloaded by the host's apt, pip and npm; it is installed inside the tree
// of the layers below, without network, and what changed there is the layer. A finished layer is kept, so that a
// build that failed, or whose definition changed further up, goes on from there.
//
// The cache directory (DefaultCacheDir by default):
//
//	lock             held by the one build that runs
//	apt/             package lists and downloaded packages, shared by all images
//	wheels/          downloaded Python packages
//	npm/             what npm downloaded
//	layers/          finished layers of images that are not
//	<name>.tar       the archive built last, which names what it was built from, layer by layer
//	build-*/         a build under way; what a killed one left is removed by the next
package sandboximage

import (
	"cmp"
	"context"
	"embed"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"berth/proto"
	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/debian"
	"berth/sandbox-image/layer"
	"berth/sandbox-image/ociarchive"
	"berth/sandbox-image/recipe"
)

// DefaultCacheDir is where builds keep downloads and archives unless Options say otherwise. Builds
// run as root, so it is one place for the whole machine.
const DefaultCacheDir = "/var/cache/berth"

// Options say what to build and where to put it.
type Options struct {
	// Name is one of Names.
	Name string
	// Out is the archive's path, replaced atomically. Empty: only the copy in CacheDir is made.
	Out string
	// CacheDir keeps downloads and archives between builds. Empty: DefaultCacheDir.
	CacheDir string
	// Refresh asks the Debian mirrors for newer packages even if the archive at hand fits its
	// definition, and rebuilds if there are any. Without it an archive is used as long as the
	// definition stays the same.
	Refresh bool
	// Log gets the full output of apt and mmdebstrap. It may name host paths. Nil: none.
	Log io.Writer
	// Progress is called for every step, often, from one goroutine at a time. Nil: not called.
	Progress func(Step)
}

// A Step is the progress of a build.
type Step = buildenv.Step

// A Result describes a finished archive.
type Result struct {
	Path     string  // of the archive: Options.Out, or the copy in the cache
	Ref      string  // name an importer gives the image
	Digest   string  // of the manifest, "sha256:…": what sessions pin
	Size     int64   // bytes of the archive
	Packages int     // Debian packages installed
	Layers   []Layer // lowest first
	Reused   bool    // an archive of an earlier build was still right
}

// A Layer is one layer of the image.
type Layer struct {
	Name     string // what it adds, or the image's name
	Digest   string // of the compressed blob
	Size     int64  // compressed bytes
	Unpacked int64  // bytes of its tar stream
}

// definitions holds one directory per image. A new image is a new directory, named here.
//
//go:embed base dev full
var definitions embed.FS

// Names returns the images that Build can make, sorted.
func Names() []string {
	entries, err := definitions.ReadDir(".")
	if err != nil {
		panic(err) // the embedded root always reads
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// load reads and checks the definition called name.
func load(name string) (recipe.Definition, error) {
	if !slices.Contains(Names(), name) {
		return recipe.Definition{}, proto.Errorf(proto.InvalidArgument, buildenv.Op, name,
			"there is no image definition called %q; there is %s", name, strings.Join(Names(), ", "))
	}
	d, err := recipe.Parse(definitions, name)
	if err != nil {
		return recipe.Definition{}, proto.Errorf(proto.Internal, buildenv.Op, name,
			"image definition %q is broken: %v", name, err)
	}
	return d, nil
}

// Ref returns the name under which an image is stored and imported. It belongs to no registry.
func Ref(name string) string { return proto.OwnImages + name + ":latest" }

// Build makes the image, or finds in milliseconds that the archive of an earlier build still fits. Call it whenever
// the archive is needed. One build runs at a time per cache directory; others wait. It needs root and mmdebstrap. An
// interrupted build leaves Out unchanged.
//
// Errors are *proto.Error: InvalidArgument for an unknown name, PermissionDenied without root, Unsupported if the
// host lacks a program, Unavailable if packages cannot be fetched, Internal for a failed installation (Options.Log
// has its output). Context errors are returned unchanged.
func Build(ctx context.Context, o Options) (Result, error) {
	def, err := load(o.Name)
	if err != nil {
		return Result{}, err
	}
	if o.CacheDir == "" {
		o.CacheDir = DefaultCacheDir
	}
	if o.Out != "" && !o.Refresh {
		// The common case needs neither root nor the lock: the archive is there.
		if r, ok := reuse(o.Out, def.Key); ok {
			return r, nil
		}
	}
	if !plainPath.MatchString(o.CacheDir) {
		return Result{}, proto.Errorf(proto.InvalidArgument, buildenv.Op, "CacheDir",
			"the cache directory's path has characters that apt's configuration cannot hold; choose one of letters, "+
				"digits and ._-+/")
	}
	if err := checkHost(def); err != nil {
		return Result{}, err
	}
	return buildLocked(ctx, o, def)
}

// A tool is a program that a build runs, with its Debian package.
type tool struct{ program, pkg string }

// tools are what every build runs.
var tools = []tool{
	{"mmdebstrap", "mmdebstrap"},
	{"apt-get", "apt"},
	{"dpkg", "dpkg"},
}

// Programs that fetch wheels and npm modules.
var (
	pip = tool{"pip3", "python3-pip"}
	npm = tool{"npm", "npm"}
)

// toolsOf returns the programs that a build of the definition runs.
func toolsOf(d recipe.Definition) []tool {
	list := slices.Clone(tools)
	if len(wheelsOf(d)) > 0 {
		list = append(list, pip)
	}
	if slices.ContainsFunc(d.Additions, func(a recipe.Layer) bool { return a.NPM }) {
		list = append(list, npm)
	}
	return list
}

// wheelsOf returns all wheels of a definition and of the image below.
func wheelsOf(d recipe.Definition) []recipe.Wheel {
	list := slices.Clone(d.Wheels)
	for _, a := range d.Additions {
		list = append(list, a.Wheels...)
	}
	if d.From != nil {
		list = append(list, wheelsOf(*d.From)...)
	}
	return list
}

// checkHost reports missing requirements of a build before minutes of work.
func checkHost(d recipe.Definition) error {
	if os.Geteuid() != 0 {
		return proto.Errorf(proto.PermissionDenied, buildenv.Op, "",
			"building an image creates files of many owners and needs root; run it again with sudo")
	}
	for _, t := range toolsOf(d) {
		if _, err := exec.LookPath(t.program); err != nil {
			return buildenv.Missing(t.pkg)
		}
	}
	return nil
}

// plainPath matches paths that need no quoting in the formats of apt and mmdebstrap.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9._+/-]+$`)

// buildLocked waits for the lock, brings the cache's archive up to date, and then writes Out.
func buildLocked(ctx context.Context, o Options, def recipe.Definition) (Result, error) {
	cache, err := filepath.Abs(o.CacheDir)
	if err != nil {
		return Result{}, buildenv.IOError("the cache directory", err)
	}
	// apt's unprivileged user needs access to the downloads.
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Result{}, buildenv.IOError("the cache directory", err)
	}
	b := &build{Env: &buildenv.Env{Cache: cache, Log: o.Log, Progress: o.Progress}, def: def, refresh: o.Refresh}
	unlock, err := b.Lock(ctx)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	r, err := b.cached(ctx)
	if err != nil || o.Out == "" {
		return r, err
	}
	if err := buildenv.CopyFile(o.Out, r.Path); err != nil {
		return Result{}, buildenv.IOError("the archive", err)
	}
	r.Path = o.Out
	return r, nil
}

// A build makes one image. It holds the cache's lock.
type build struct {
	*buildenv.Env
	def     recipe.Definition
	refresh bool
}

func (b *build) archive() string { return filepath.Join(b.Cache, b.def.Name+".tar") }

// cached returns the archive in the cache, and rebuilds it if it does not fit.
func (b *build) cached(ctx context.Context) (Result, error) {
	if r, ok := reuse(b.archive(), b.def.Key); ok && !b.refresh {
		return r, nil
	}
	if b.def.From != nil {
		return b.extend(ctx)
	}
	a, err := debian.NewApt(b.Env, b.def.Files)
	if err != nil {
		return Result{}, err
	}
	pkgs, err := a.Resolve(ctx, "", append([]string{"?essential"}, b.def.Packages...))
	if err != nil {
		return Result{}, err
	}
	if a, ok := ociarchive.Find(b.archive(), b.def.Key); ok && a.Packages() == pkgs.Fingerprint() {
		return resultOf(a), nil
	}
	if err := a.Download(ctx, pkgs); err != nil {
		return Result{}, err
	}
	return b.assemble(ctx, a, pkgs)
}

// assemble installs the downloaded packages and packs the tree, in a directory that it always removes.
func (b *build) assemble(ctx context.Context, a *debian.Apt, pkgs debian.PackageSet) (Result, error) {
	if err := b.removeStale(); err != nil {
		return Result{}, buildenv.IOError("the cache directory", err)
	}
	dir, err := os.MkdirTemp(b.Cache, "build-")
	if err != nil {
		return Result{}, buildenv.IOError("the build directory", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return Result{}, buildenv.IOError("the build directory", err)
	}
	epoch, err := a.Repository(filepath.Join(dir, "repo"), pkgs)
	if err != nil {
		return Result{}, buildenv.IOError("the package repository", err)
	}
	if err := b.gatherRoot(ctx, filepath.Join(dir, "part")); err != nil {
		return Result{}, err
	}
	root := filepath.Join(dir, "root")
	if err := b.bootstrap(ctx, dir, root, len(pkgs), epoch); err != nil {
		return Result{}, err
	}
	packed, err := layer.Pack(ctx, b.Env, root, filepath.Join(dir, "layer"), epoch, nil)
	if err != nil {
		return Result{}, err
	}
	packed.Packages = len(pkgs)
	return b.finish([]layer.Layer{packed}, pkgs.Fingerprint())
}

// finish writes the archive of the layers, lowest first. packages is the fingerprint of their packages.
func (b *build) finish(layers []layer.Layer, packages string) (Result, error) {
	if err := ociarchive.Write(b.archive(), ociarchive.Image{
		Name: b.def.Name, Ref: Ref(b.def.Name), Key: b.def.Key, Env: b.def.Env, Packages: packages},
		layers); err != nil {
		return Result{}, buildenv.IOError("the archive", err)
	}
	a, ok := ociarchive.Find(b.archive(), b.def.Key)
	if !ok {
		return Result{}, proto.Errorf(proto.Internal, buildenv.Op, b.def.Name,
			"the archive just written does not read back; is the disk healthy?")
	}
	r := resultOf(a)
	r.Reused = false
	return r, nil
}

// reuse describes the archive at path if it is whole and was made from the definition with this key.
func reuse(path, key string) (Result, bool) {
	a, ok := ociarchive.Find(path, key)
	return resultOf(a), ok
}

// resultOf describes an archive of an earlier build.
func resultOf(a ociarchive.Archive) Result {
	r := Result{Path: a.Path, Digest: a.Entry.Digest.String(), Size: a.Size, Reused: true,
		Ref: a.Entry.Annotations[ociarchive.ContainerdName], Packages: a.PackageCount()}
	for _, l := range a.Layers() {
		r.Layers = append(r.Layers, Layer{Name: cmp.Or(l.Name, a.Name()), Digest: l.Digest.String(), Size: l.Size,
			Unpacked: l.Unpacked})
	}
	return r
}

// removeStale removes the remains of killed builds. Their mounts ended with their mount namespace, so nothing of the
// host is below.
func (b *build) removeStale() error {
	left, err := filepath.Glob(filepath.Join(b.Cache, "build-*"))
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return err
}

package sandboximage

import (
	"context"
	"fmt"

	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/debian"
	"berth/sandbox-image/layer"
	"berth/sandbox-image/ociarchive"
	"berth/sandbox-image/recipe"

	_ "embed"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/proto"
)

// for installScript

// installScript makes a layer, from inside.
//
//go:embed install.sh
var installScript string

// A stack is an unfinished image: the tree of the layers so far, and those layers.
type stack struct {
	*build
	apt    *debian.Apt
	wheels *wheelhouse
	cache  *ociarchive.Cache
	dir    string        // of this build
	root   string        // the tree, in dir
	layers []layer.Layer // lowest first
}

// extend builds an image that extends another.
func (b *build) extend(ctx context.Context) (Result, error) {
	// The image below comes first: its build has its own directory, and removes the remains of other builds.
	lower := *b
	lower.def = *b.def.From
	below, err := lower.cached(ctx)
	if err != nil {
		return Result{}, err
	}
	s, err := b.newStack()
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(s.dir)
	if err := s.putBase(ctx, below); err != nil {
		return Result{}, err
	}
	for _, a := range b.def.Additions {
		b.Layer = a.Name
		if err := s.addLayer(ctx, a); err != nil {
			return Result{}, err
		}
	}
	return s.finish()
}

// newStack makes the directory and opens the cached layers.
func (b *build) newStack() (*stack, error) {
	if err := b.removeStale(); err != nil {
		return nil, buildenv.IOError("the cache directory", err)
	}
	s := &stack{build: b}
	var err error
	if s.cache, err = ociarchive.OpenCache(filepath.Join(b.Cache, "layers"), b.archive()); err != nil {
		return nil, buildenv.IOError("the layer cache", err)
	}
	if s.wheels, err = newWheelhouse(b.Env); err != nil {
		return nil, err
	}
	if s.apt, err = debian.NewApt(b.Env, b.def.Files); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(b.Cache, "build-"); err != nil {
		return nil, buildenv.IOError("the build directory", err)
	}
	s.root = filepath.Join(s.dir, "root")
	// apt's unprivileged user needs access.
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return nil, buildenv.IOError("the build directory", err)
	}
	return s, nil
}

// putBase takes the layers of the image below.
func (s *stack) putBase(ctx context.Context, below Result) error {
	if err := os.Mkdir(s.root, 0o755); err != nil {
		return buildenv.IOError("the image's tree", err)
	}
	a, err := ociarchive.Read(below.Path)
	if err != nil {
		return buildenv.IOError("the image below", err)
	}
	for _, l := range a.Layers() {
		l.Name, l.Packages = s.def.From.Name, below.Packages
		// The next layers build on its contents, so these are its key.
		l.Key = recipe.ChainKey("", l.Digest.String())
		if err := s.putLayer(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// putLayer unpacks a finished layer on top.
func (s *stack) putLayer(ctx context.Context, l layer.Layer) error {
	if err := layer.Unpack(ctx, s.Env, l, s.root); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		s.cache.Remove(l)
		return proto.Errorf(proto.Internal, buildenv.Op, l.Name,
			"the layer %s of an earlier build cannot be read (%v); "+
				"remove %s.tar from the cache directory and run it again",
			l.Name, err, s.def.Name)
	}
	s.layers = append(s.layers, l)
	return nil
}

func (s *stack) top() layer.Layer { return s.layers[len(s.layers)-1] }

// addLayer puts the layer on top, from the cache if its input is the same.
func (s *stack) addLayer(ctx context.Context, a recipe.Layer) error {
	pkgs, err := s.resolve(ctx, a)
	if err != nil {
		return err
	}
	key := recipe.ChainKey(s.top().Key, a.Hash, installScript, pkgs.Fingerprint())
	if l, ok := s.cache.Find(key); ok {
		return s.putLayer(ctx, l)
	}
	before, err := layer.StampTree(s.root)
	if err != nil {
		return buildenv.IOError("the image's tree", err)
	}
	epoch, err := s.makeLayer(ctx, a, pkgs)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, "layer")
	l, err := layer.Pack(ctx, s.Env, s.root, path, epoch, before)
	if err != nil {
		return err
	}
	l.Name, l.Key, l.Packages = a.Name, key, len(pkgs)
	if l, err = s.cache.Add(l); err != nil {
		return buildenv.IOError("the layer cache", err)
	}
	s.layers = append(s.layers, l)
	return nil
}

// resolve decides which Debian packages the layer needs beyond those below.
func (s *stack) resolve(ctx context.Context, a recipe.Layer) (debian.PackageSet, error) {
	if len(a.Packages) == 0 {
		return nil, nil
	}
	status, err := os.ReadFile(filepath.Join(s.root, "var/lib/dpkg/status"))
	if err != nil {
		return nil, buildenv.IOError("the packages of the image below", err)
	}
	return s.apt.Resolve(ctx, string(status), a.Packages)
}

// makeLayer downloads what the layer needs and installs it. It returns the time of the layer's newest file.
func (s *stack) makeLayer(ctx context.Context, a recipe.Layer, pkgs debian.PackageSet) (time.Time, error) {
	part := filepath.Join(s.dir, "part")
	if err := os.Mkdir(part, 0o755); err != nil {
		return time.Time{}, buildenv.IOError("the build directory", err)
	}
	defer os.RemoveAll(part)
	epoch, err := s.gather(ctx, part, a, pkgs)
	if err != nil {
		return time.Time{}, err
	}
	return epoch, s.install(ctx, part, a, len(pkgs), epoch)
}

// gather puts the layer's input below dir, where install.sh expects it.
func (s *stack) gather(ctx context.Context, dir string, a recipe.Layer, pkgs debian.PackageSet) (epoch time.Time,
	err error) {
	epoch = s.top().Epoch
	if len(pkgs) > 0 {
		if err := s.apt.Download(ctx, pkgs); err != nil {
			return epoch, err
		}
		made, err := s.apt.Repository(filepath.Join(dir, "repo"), pkgs)
		if err != nil {
			return epoch, buildenv.IOError("the package repository", err)
		}
		if made.After(epoch) {
			epoch = made
		}
	}
	if err := s.wheels.put(ctx, filepath.Join(dir, "wheels"), a.Wheels); err != nil {
		return epoch, err
	}
	if a.NPM {
		if err := s.modules(ctx, filepath.Join(dir, "modules"), a); err != nil {
			return epoch, err
		}
	}
	return epoch, s.write(dir, a)
}

// modules lets the host's npm fetch the locked modules without running any code of them.
func (s *stack) modules(ctx context.Context, dir string, a recipe.Layer) error {
	s.Step(buildenv.Step{Name: buildenv.StepDownloading, Item: "modules of npm"})
	work := filepath.Join(s.dir, "npm")
	if err := buildenv.WriteFiles(work, a.Tree); err != nil {
		return buildenv.IOError("the build directory", err)
	}
	defer os.RemoveAll(work)
	cmd := buildenv.Command{
		Path: npm.program,
		Args: []string{"ci", "--prefix", work, "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund",
			"--no-update-notifier",
			"--cache", filepath.Join(s.Cache, "npm"), "--logs-max=0"},
		Env: append(os.Environ(), "LC_ALL=C.UTF-8"),
		Log: s.Log,
	}
	if _, err := cmd.Run(ctx); err != nil {
		return buildenv.Unavailable(ctx, "the modules of npm cannot be downloaded", err)
	}
	if err := os.Rename(filepath.Join(work, "node_modules"), dir); err != nil {
		return buildenv.IOError("the modules of npm", err)
	}
	size, err := layer.TreeSize(dir, nil)
	s.Step(buildenv.Step{Name: buildenv.StepDownloading, Item: fmt.Sprintf("modules of npm %.1f MB",
		float64(size)/1e6)})
	return err
}

// write writes the layer's own files.
func (s *stack) write(dir string, a recipe.Layer) error {
	text := map[string]string{"install.sh": installScript, "packages": strings.Join(a.Packages, "\n"),
		recipe.PrepareFile: a.Prepare, recipe.SetupFile: a.Setup}
	maps.DeleteFunc(text, func(_, data string) bool { return data == "" })
	if err := buildenv.WriteTexts(dir, text); err != nil {
		return buildenv.IOError("the build directory", err)
	}
	if err := a.WriteFiles(filepath.Join(dir, recipe.FilesDir)); err != nil {
		return buildenv.IOError("the image's files", err)
	}
	return nil
}

// enter prepares the tree $1 for running programs, with $2 at /run/berth, and runs the script there. The mounts are
// in a namespace that ends with it. Devices are the host's: root may lack the right to make them.
const enter = `
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
mkdir "$1/dev/shm"
chmod 1777 "$1/dev/shm"
for d in null zero full random urandom tty; do
	: >"$1/dev/$d"
	mount --bind "/dev/$d" "$1/dev/$d"
done
ln -s /proc/self/fd "$1/dev/fd"
mkdir -p "$1/run/berth" "$1/tmp"
chmod 1777 "$1/tmp"
mount --bind "$2" "$1/run/berth"
exec chroot "$1" /bin/sh -eu /run/berth/install.sh
`

// install runs install.sh inside the tree.
func (s *stack) install(ctx context.Context, part string, a recipe.Layer, count int, epoch time.Time) error {
	p := &installation{build: s.build, total: int64(count), wheels: int64(len(recipe.ForHost(a.Wheels)))}
	cmd := buildenv.Command{
		Path: "/bin/sh",
		Args: []string{"-euc", enter, "sh", s.root, part},
		// None of the host's environment, or it would reach the packages' scripts.
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"LC_ALL=C.UTF-8",
			"TZ=UTC",
			"HOME=/root",
			"DEBIAN_FRONTEND=noninteractive",
			"RUNLEVEL=1", // services are not started
			"PYTHONDONTWRITEBYTECODE=1",
			"SOURCE_DATE_EPOCH=" + strconv.FormatInt(epoch.Unix(), 10),
		},
		Log:     s.Log,
		Line:    p.line,
		Offline: true,
	}
	if _, err := cmd.Run(ctx); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		return proto.Errorf(proto.Internal, buildenv.Op, a.Name,
			"installing the layer %s failed (%v); the build log has the details", a.Name, err)
	}
	return nil
}

// finish writes the archive, unless the present one is the same, and removes files that only an unfinished image
// needs.
func (s *stack) finish() (Result, error) {
	keys := make([]string, len(s.layers))
	for i, l := range s.layers {
		keys[i] = l.Key
	}
	all := recipe.ChainKey("", keys...)
	old, ok := ociarchive.Find(s.archive(), s.def.Key)
	r := resultOf(old)
	if !ok || old.Packages() != all {
		var err error
		if r, err = s.build.finish(s.layers, all); err != nil {
			return Result{}, err
		}
	}
	wheels := wheelsOf(s.def)
	for _, name := range Names() {
		def, err := load(name)
		if err != nil {
			return Result{}, err
		}
		wheels = append(wheels, wheelsOf(def)...)
	}
	if err := s.wheels.removeOthers(wheels); err != nil {
		return Result{}, buildenv.IOError("the wheel cache", err)
	}
	if err := s.cache.Clear(); err != nil {
		return Result{}, buildenv.IOError("the layer cache", err)
	}
	return r, nil
}

package daemon

import (
	"context"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"berth/backup"
	"berth/build"
	"berth/build/wire"
	"berth/proto"
	"berth/runtime/containerd"
	"berth/runtime/images"
	"berth/session"
	"berth/session/stats"
	"berth/state/keys"
)

// A host is the machine below a session.Runtime.
type host interface {
	Classes() []proto.RuntimeClass                 // runtime classes available on this machine, sorted
	MissingClasses() map[proto.RuntimeClass]string // the other classes, and why they are not available
	Alive(context.Context) error                   // fails if the runtime cannot work
	KeepWarm()                                     // starts to fill the warm pool
	ResizeWarm(least, most int)                    // changes the sizes of the warm pool; 0 and 0 empty it
	// PoolCounts counts the sandboxes of the warm pool by the digest of their image. hits counts the starts that the
	// pool served, and misses those that it could have served.
	PoolCounts() (ready, starting map[string]int, hits, misses int64)
	// SweepImages removes unused images, except those with a digest in keep. It returns the digests removed.
	SweepImages(ctx context.Context, keep []string) ([]string, error)
}

// A machine is the runtime, its images and its host. To use another runtime, write another openMachine.
type machine struct {
	session.Runtime
	images build.Images
	pushes registryClient
	meter  stats.Meter
	space  ownerSpace
	host   host
	disk   backup.Pool
	saved  imageArchive
	close  io.Closer
	builds build.Config // what the runtime gives to builds
}

// An imageArchive writes all images into an archive, and reads it.
type imageArchive interface {
	backup.Images
	Load(ctx context.Context, r io.Reader, progress func(name string)) error
}

// A registryClient speaks to image registries.
type registryClient interface {
	UseCredentials(images.Credentials)
	UseMirrors(images.Mirrors)
	CheckLogin(ctx context.Context, host, username, password string) error
	Push(ctx context.Context, name, ref string, progress func(proto.ImageProgress)) (proto.Image, error)
}

// An ownerSpace knows what owners have on the disk of workspaces, layers and snapshots.
type ownerSpace interface {
	OwnerSpace(owner string) (used, limit int64, counted bool)
}

// quotas count what API keys use. What their owners have on the disk is the machine's to say.
type quotas struct {
	*keys.Store
	space ownerSpace
}

// Usage returns what a key uses.
func (q quotas) Usage(k proto.Key) proto.KeyUsage {
	use := q.Store.Usage(k)
	if used, limit, counted := q.space.OwnerSpace(k.Owner); counted {
		use.OwnerDiskBytes, use.OwnerDiskLimit = &used, limit
	}
	return use
}

// openMachine opens the containerd runtime of this machine. hasFiles: there are workspaces on it.
func openMachine(ctx context.Context, cfg Config, hasFiles bool) (machine, error) {
	r, err := containerd.Open(ctx, containerd.Config{
		Dir: filepath.Join(cfg.Dir, "runtime"), BinDir: cfg.BinDir, Address: cfg.Address,
		HasFiles: hasFiles && !cfg.AcceptLoss.Workspaces, PoolBytes: cfg.PoolBytes,
		OwnerBytes: cfg.OwnerDisk, Log: cfg.Log,
		Handshake: session.Handshake,
		Warm: containerd.Warm{Min: cfg.WarmMin, Max: cfg.WarmMax, Image: cfg.Session.Image,
			Class: cfg.Session.Classes.Usual(), Limits: cfg.Session.Limits},
	})
	if err != nil {
		return machine{}, err
	}
	return machine{r, r.Images(), r.Images(), r, r, containerdHost{r}, r.Disk(), r.Images(), r, build.Config{
		Images: r.Images(), Machine: stepMachine{r}, Sockets: r.BuildDir(), Program: r.Program("berth-builder"),
		Namespace: images.Namespace, Snapshots: images.Snapshotter,
	}}, nil
}

// A stepMachine is the containerd runtime as builds see it.
type stepMachine struct{ *containerd.Runtime }

// StartStep starts a sandbox of a step.
func (m stepMachine) StartStep(ctx context.Context, class proto.RuntimeClass, limits proto.Limits,
	trees []wire.Tree) (build.Step, error) {
	s, err := m.Runtime.StartStep(ctx, containerd.StepSpec{Class: class, Limits: limits, Trees: trees})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// A containerdHost is the host of the containerd runtime.
type containerdHost struct{ *containerd.Runtime }

func (h containerdHost) Classes() []proto.RuntimeClass {
	return slices.Sorted(maps.Keys(h.Facts().Classes))
}

func (h containerdHost) MissingClasses() map[proto.RuntimeClass]string { return h.Facts().Missing }

// checkClasses returns an error if the operator has asked for a runtime class that this machine does not have.
// Otherwise each create would fail.
func (m machine) checkClasses(asked ...proto.RuntimeClass) error {
	missing := m.host.MissingClasses()
	for _, class := range asked {
		if why := missing[class]; why != "" {
			return proto.Errorf(proto.Unsupported, "", "runtime-class", "runtime class %q is not available on this "+
				"machine: %s", class, why)
		}
	}
	return nil
}

// classes returns the runtime classes that requests may ask for and this machine has.
func (m machine) classes(allowed []proto.RuntimeClass) []proto.RuntimeClass {
	return slices.DeleteFunc(m.host.Classes(), func(c proto.RuntimeClass) bool {
		return !slices.Contains(allowed, c)
	})
}

func (h containerdHost) PoolCounts() (ready, starting map[string]int, hits, misses int64) {
	n := h.WarmCounts()
	return n.Ready, n.Making, n.Hits, n.Misses
}

func (h containerdHost) SweepImages(ctx context.Context, keep []string) ([]string, error) {
	return h.Images().Sweep(ctx, keep)
}

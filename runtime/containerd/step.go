package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"berth/build/wire"
	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/images"
	"berth/runtime/launch"
	"berth/runtime/layer"
	"berth/runtime/ocispec"
)

// A StepSpec is the input of StartStep.
type StepSpec struct {
	Class  proto.RuntimeClass
	Limits proto.Limits // no field is zero
	Trees  []wire.Tree  // what the step sees; the first is its root
}

// A Step is a running sandbox for one command of an image's build. It is made of the same parts as the sandbox of a
// session: user namespace, filter of system calls, cgroup, guest. It has no workspace and is in no record, and the
// runtime does not list it while its daemon lives. What a killed daemon leaves of it is listed, and so removed, like
// any unknown sandbox.
type Step struct {
	r       *Runtime
	id      string
	sandbox *launch.Sandbox
}

// stepRun bounds the layer that holds the run directory of a step, in bytes. The guest's socket is in it.
const stepRun = 64 << 20

// steps are the IDs of the steps of this daemon.
type steps struct {
	mu  sync.Mutex // guards all
	all map[string]bool
}

func (s *steps) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]bool{}
	}
	s.all[id] = true
}

func (s *steps) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

func (s *steps) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

// StartStep starts a sandbox over file systems of a build, and returns once its guest can be dialled. After a failure
// nothing of it is left. The caller calls End.
func (r *Runtime) StartStep(ctx context.Context, spec StepSpec) (*Step, error) {
	class, err := r.pickClass(spec.Class)
	if err != nil {
		return nil, err
	}
	if r.cfg.Address != "" {
		return nil, proto.Errorf(proto.Unsupported, "build", "", "images are built by the daemon's own containerd "+
			"alone")
	}
	if err := r.checkTrees(spec.Trees); err != nil {
		return nil, r.fail(ctx, "build", "", err)
	}
	select {
	case r.starts <- struct{}{}:
		defer func() { <-r.starts }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	id := proto.NewID(proto.ContainerPrefix)
	s := &Step{r: r, id: id}
	r.steps.add(id)
	if err := s.start(ctx, spec, class); err != nil {
		if undo := s.End(ctx); undo != nil {
			r.log.Error("undoing the start of a build's step", "sandbox", id, "err", undo)
		}
		return nil, r.fail(ctx, "build", "", err)
	}
	return s, nil
}

// start makes the sandbox.
func (s *Step) start(ctx context.Context, spec StepSpec, class launch.Class) error {
	r := s.r
	s.sandbox = &launch.Sandbox{Spec: ocispec.Spec{ID: s.id, Class: spec.Class, Limits: spec.Limits, Step: true,
		Hostname: "build"},
		Guest: r.guest, Server: r.server, Run: r.runPath(s.id), Trees: spec.Trees,
		Recorded: func() error { return nil }}
	b := s.sandbox
	var err error
	if b.FirstID, err = r.ids.Take(s.id); err != nil {
		return err
	}
	namespace := r.enterNamespace(b)
	defer namespace.Leave()
	dir, _, err := r.disk.MakeLayer(s.id, diskpool.Claim{}, b.FirstID, stepRun)
	if err != nil {
		return err
	}
	b.Upper, b.Work = filepath.Join(dir, "step-upper"), filepath.Join(dir, "step-work")
	for _, dropped := range []string{b.Upper, b.Work} {
		if err := os.Mkdir(dropped, 0o755); err != nil {
			return err
		}
	}
	if b.UserNamespace, err = namespace.Path(); err != nil {
		return err
	}
	if spec.Class == proto.ClassGVisor {
		return r.launch(ctx, b, r.gvisor)
	}
	return r.launch(ctx, b, launch.Runc{Binary: class.Binary, Bundles: r.bundles})
}

// Guest returns the path of the guest's program inside.
func (s *Step) Guest() string { return layer.InsideGuest }

// Dial connects to the guest.
func (s *Step) Dial(ctx context.Context) (net.Conn, error) { return dialGuest(ctx, s.sandbox.Run) }

// OutOfMemory reports whether the kernel has killed a process of the step for lack of memory.
func (s *Step) OutOfMemory() bool { return s.r.Measure(s.id, "").OOMKills > 0 }

// End ends every process of the step and removes its sandbox. The file systems stay, without the mount points that the
// image does not have. End works also after ctx has ended.
func (s *Step) End(ctx context.Context) error {
	defer s.r.steps.drop(s.id)
	if err := s.r.removeSandbox(ctx, s.id); err != nil {
		return err
	}
	if s.sandbox == nil {
		return nil
	}
	return s.sandbox.Stubs.Clean()
}

// ServeContent serves the images and layers of the runtime's containerd on a socket, for a builder. The caller calls
// the returned function.
func (r *Runtime) ServeContent(socket string) (stop func(), err error) {
	if r.embedded == nil {
		return nil, proto.Errorf(proto.Unsupported, "build", "", "images are built by the daemon's own containerd "+
			"alone")
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	return r.embedded.Serve(ln)
}

// Program returns the path of a program in the program directory.
func (r *Runtime) Program(name string) string { return filepath.Join(r.cfg.BinDir, name) }

// BuildDir returns the directory of the sockets and scratch files of builds. It is below /run, since the path of a
// socket must be short.
func (r *Runtime) BuildDir() string { return filepath.Join(r.run, "b") }

// LayersDir returns the directory that has all layers of images; steps see directories below it alone.
func (r *Runtime) LayersDir() string {
	return filepath.Join(r.cfg.Dir, "ctr", "io.containerd.snapshotter.v1."+images.Snapshotter)
}

// checkTrees refuses file systems that are not the builder's own, so that a faulty builder cannot show the host's files
// to a step.
func (r *Runtime) checkTrees(trees []wire.Tree) error {
	if len(trees) == 0 {
		return errors.New("a step has no root")
	}
	for _, t := range trees {
		for _, path := range slices.Concat([]string{t.Dir, t.Upper, t.Work}, t.Lowers) {
			inside := strings.HasPrefix(path, r.LayersDir()+"/") && filepath.Clean(path) == path
			if path != "" && !inside {
				return fmt.Errorf("a step wants to see %.200q", path)
			}
		}
		if t.Dir == "" && len(t.Lowers) == 0 && t.Memory <= 0 && t.Secret == nil {
			return fmt.Errorf("a step has nothing to see at %.200q", t.Target)
		}
	}
	return nil
}

// Confine puts a program of the daemon's into a cgroup with these limits. The caller calls release after its end.
func (r *Runtime) Confine(pid int, id string, limits proto.Limits) (release func(), err error) {
	groups, err := cgroup.Make(ocispec.WithoutFilter(ocispec.Spec{ID: id, Class: proto.ClassRunc, Limits: limits}))
	if err != nil {
		return nil, err
	}
	release = func() { r.Unconfine(id) }
	if err := errors.Join(groups.Enter(pid), groups.Limit()); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Unconfine ends what Confine has put into a cgroup, also for an earlier daemon, and removes the cgroup.
func (r *Runtime) Unconfine(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	cgroup.Kill(id)
	if err := cgroup.Remove(ctx, id); err != nil {
		r.log.Warn("removing the cgroup of a builder", "err", err)
	}
}

package containerd

import (
	"context"
	"path/filepath"
	"slices"

	"berth/proto"
	"berth/runtime/inside"
	"berth/runtime/launch"
	"berth/runtime/meter"
	"berth/runtime/ocispec"
)

// figuresOff, in the environment of an image, leaves its containers the kernel's own figures.
const figuresOff = "BERTH_CAPACITY=off"

// openFigures prepares the files that tell sandboxes their limits. Without them, sandboxes see the machine's figures.
func (r *Runtime) openFigures() {
	var err error
	r.figures, err = inside.Open(filepath.Join(r.run, "i"), r.figuresOf, r.log)
	if err != nil {
		r.log.Warn("free and df in containers show the machine's memory and disk", "err", err)
	}
}

// figuresOf returns what a sandbox may use and uses now.
func (r *Runtime) figuresOf(sandbox string) inside.Figures {
	g := inside.Figures{Memory: meter.MemoryOf(sandbox)}
	g.Layer = meter.SpaceOf(r.disk, r.disk.LayerPath(sandbox))
	if workspace := r.index.workspace(sandbox); workspace != "" {
		g.Workspace = meter.SpaceOf(r.disk, r.disk.WorkspacePath(workspace))
	}
	return g
}

// mountFigures makes the files that tell a sandbox its limits. A sandbox whose programs may gain privileges gets none,
// since its guest may not answer for the kernel. The mounts of a shim's sandboxes are made where the shim is.
func (r *Runtime) mountFigures(b *launch.Sandbox) error {
	if !r.direct || b.Class != proto.ClassRunc || b.Sudo || slices.Contains(ocispec.ProcessEnv(b.Env), figuresOff) {
		return nil
	}
	mounts, err := r.figures.Make(b.ID, b.Limits)
	b.Mounts = append(b.Mounts, mounts...)
	return err
}

// adoptFigures finds the files of the sandboxes of earlier daemons.
func (r *Runtime) adoptFigures(ctx context.Context) {
	for _, sandbox := range r.index.sandboxes() {
		pid, err := r.firstProcess(ctx, sandbox)
		if err != nil {
			continue // it has ended
		}
		if err := r.figures.Adopt(sandbox, pid); err != nil {
			r.log.Warn("a container's free and df show what they did before", "sandbox", sandbox, "err", err)
		}
	}
}

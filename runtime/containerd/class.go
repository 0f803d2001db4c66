package containerd

import (
	"path/filepath"

	"berth/proto"
	"berth/runtime/launch"
)

// findPrograms checks the programs in BinDir. The shim, the guest and runc are required. Without runsc, its class is
// not available.
func (r *Runtime) findPrograms() error {
	for _, p := range []string{r.shimPath, r.cfg.Guest, r.cfg.Starter()} {
		if err := launch.Executable(p); err != nil {
			return proto.Errorf(proto.Unsupported, "opening the runtime", filepath.Base(p),
				"%s is missing from the program directory; build it with make", filepath.Base(p))
		}
	}
	runc := launch.RuncClass(r.cfg.BinDir)
	if runc.Missing != "" {
		return proto.Errorf(proto.Unsupported, "opening the runtime", "runc", "%s", runc.Missing)
	}
	gvisor, err := launch.GvisorClass(r.cfg.BinDir, r.cfg.Dir)
	if err != nil {
		return err
	}
	r.gvisor = launch.Gvisor{Binary: filepath.Join(r.cfg.BinDir, "runsc"), Bundles: r.bundles}
	r.class = map[proto.RuntimeClass]launch.Class{proto.ClassRunc: runc, proto.ClassGVisor: gvisor}
	return nil
}

// pickClass returns the requested class, and never another.
func (r *Runtime) pickClass(c proto.RuntimeClass) (launch.Class, error) {
	info, ok := r.class[c]
	if !ok {
		return info, proto.Errorf(proto.Unsupported, "start", string(c),
			"there is no runtime class %.32q; use %q or %q", string(c), proto.ClassRunc, proto.ClassGVisor)
	}
	if info.Missing != "" {
		return info, proto.Errorf(proto.Unsupported, "start", string(c),
			"runtime class %q is not available: %s", string(c), info.Missing)
	}
	return info, nil
}

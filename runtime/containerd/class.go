package containerd

import (
	"path/filepath"

	"berth/proto"
)

// findPrograms looks at what BinDir holds. Without shim, guest and runc there is nothing
// to run; without runsc one class is missing.
func (r *Runtime) findPrograms() error {
	for _, p := range []string{r.shim, r.cfg.Guest, r.cfg.starter()} {
		if err := executable(p); err != nil {
			return proto.Errorf(proto.Unsupported, "opening the runtime", filepath.Base(p),
				"%s is missing from the program directory; build it with make", filepath.Base(p))
		}
	}
	runc := runcClass(r.cfg.BinDir)
	if runc.missing != "" {
		return proto.Errorf(proto.Unsupported, "opening the runtime", "runc", "%s", runc.missing)
	}
	gvisor, err := gvisorClass(r.cfg.BinDir, r.cfg.Dir)
	if err != nil {
		return err
	}
	r.class = map[proto.RuntimeClass]classInfo{proto.ClassRunc: runc, proto.ClassGVisor: gvisor}
	return nil
}

// pickClass is the class asked for, and never another.
func (r *Runtime) pickClass(c proto.RuntimeClass) (classInfo, error) {
	info, ok := r.class[c]
	if !ok {
		return info, proto.Errorf(proto.Unsupported, "start", string(c),
			"there is no runtime class %.32q; use %q or %q", string(c), proto.ClassRunc, proto.ClassGVisor)
	}
	if info.missing != "" {
		return info, proto.Errorf(proto.Unsupported, "start", string(c),
			"runtime class %q is not available: %s", string(c), info.missing)
	}
	return info, nil
}

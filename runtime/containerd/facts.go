package containerd

import "berth/proto"

// Facts are what a Runtime found out about its machine when it was opened.
type Facts struct {
	Pool       string                        `json:"pool"`               // PoolBtrfs, PoolLoop or PoolPlain
	DiskLimits bool                          `json:"disk_limits"`        // false: a container can fill the disk
	PoolWhy    string                        `json:"pool_why,omitempty"` // why there are no limits
	Classes    map[proto.RuntimeClass]string `json:"classes"`            // available classes, with their versions
	Missing    map[proto.RuntimeClass]string `json:"missing,omitempty"`  // classes that are not available, and why
}

// SetupFailure returns why runc last made a sandbox that the fork server should have made; nil if that did not
// happen.
func (r *Runtime) SetupFailure() error {
	if why := r.forked.Why.Load(); why != nil {
		return *why
	}
	return nil
}

// Facts returns what sandboxes get on this machine.
func (r *Runtime) Facts() Facts {
	f := Facts{
		Pool: r.disk.Kind, DiskLimits: r.disk.Quota, PoolWhy: r.disk.Why,
		Classes: make(map[proto.RuntimeClass]string), Missing: make(map[proto.RuntimeClass]string),
	}
	for class, info := range r.class {
		if info.Missing != "" {
			f.Missing[class] = info.Missing
		} else {
			f.Classes[class] = info.Version
		}
	}
	return f
}

package containerd

import (
	"berth/proto"
	"berth/runtime/meter"
	"berth/session/limits"
)

// Measure reads the counters of the sandbox's cgroup and quotas, from outside. See session.Runtime.
func (r *Runtime) Measure(id, workspace string) limits.Reading {
	if !proto.ValidID(proto.ContainerPrefix, id) || !proto.ValidID(proto.WorkspacePrefix, workspace) {
		return limits.Unknown
	}
	name := r.claims.sandbox(id)
	reading := r.gauges.Read(name, workspace, func() *meter.Gauge { return meter.OpenGauge(r.disk, name, workspace) })
	reading.Pool = limits.Space(r.disk.PoolSpace())
	return reading
}

// OwnerSpace reads what the containers and snapshots of an owner have on the disk, and its bound, both in bytes. Bytes
// that they share count once. counted is false if the disk does not count that.
func (r *Runtime) OwnerSpace(owner string) (used, limit int64, counted bool) {
	space, counted := r.disk.OwnerSpace(owner)
	return space.Used, space.Limit, counted
}

// CPUSeconds reads the CPU time of the sandbox's cgroup. See session.Runtime.
func (r *Runtime) CPUSeconds(id string) float64 {
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return -1
	}
	return meter.CPUSeconds(r.claims.sandbox(id))
}

// Usage reads what a sandbox uses now, and its workspace also while there is no sandbox.
func (r *Runtime) Usage(id, workspace string) limits.Usage {
	if !proto.ValidID(proto.ContainerPrefix, id) || !proto.ValidID(proto.WorkspacePrefix, workspace) {
		return limits.UnknownUsage
	}
	name := r.claims.sandbox(id)
	u := meter.Usage(name)
	u.Workspace, u.Layer = meter.Spaces(r.disk, name, workspace)
	return u
}

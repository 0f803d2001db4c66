package containerd

import (
	"berth/proto"
	"berth/runtime/meter"
	"berth/session"
)

var _ session.Meter = (*Runtime)(nil)

// Measure reads the counters of the sandbox's cgroup and quotas, from outside. See session.Meter.
func (r *Runtime) Measure(id, workspace string) session.Reading {
	if !proto.ValidID(proto.ContainerPrefix, id) || !proto.ValidID(proto.WorkspacePrefix, workspace) {
		return session.Reading{OOMKills: -1, PIDRefusals: -1}
	}
	name := r.claims.sandbox(id)
	reading := r.gauges.Read(name, workspace, func() *meter.Gauge { return meter.OpenGauge(r.disk, name, workspace) })
	reading.Pool = session.Space(r.disk.PoolSpace())
	return reading
}

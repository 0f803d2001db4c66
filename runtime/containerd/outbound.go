package containerd

import (
	"context"
	"errors"
	"fmt"

	"berth/egress"
	"berth/proto"
	"berth/runtime/outbound"
	"berth/session"
)

// pairs reports whether a sandbox for a session is made with a pair of devices: gVisor's kernel takes them only at its
// start.
func (r *Runtime) pairs(spec session.Spec) bool {
	return spec.Class == proto.ClassGVisor && spec.Network && r.direct && r.outbound()
}

// OpenOutbound opens the sockets that receive what the sandbox's programs send beyond its loopback. A sandbox of gVisor
// that was started without a network has none until its next start.
func (r *Runtime) OpenOutbound(ctx context.Context, id string) (egress.Outbound, error) {
	const op = "open outbound"
	sandbox := r.claims.sandbox(id)
	open := outbound.Open
	gvisor, err := r.runsGVisor(ctx, sandbox)
	if gvisor {
		open = outbound.OpenPair
	}
	var pid int
	if err == nil {
		pid, err = r.firstProcess(ctx, sandbox)
	}
	if err != nil {
		return nil, err
	}
	s, err := open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if gvisor && errors.Is(err, errors.ErrUnsupported) {
		return nil, proto.Errorf(proto.Unsupported, op, id, "programs in this container reach its network by the "+
			"proxy alone until it is started anew")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

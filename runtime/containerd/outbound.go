package containerd

import (
	"context"
	"fmt"

	"berth/egress"
	"berth/proto"
	"berth/runtime/outbound"
)

// OpenOutbound opens the sockets that receive what the sandbox's programs send beyond its loopback. gVisor's kernel has
// a network of its own, which nothing of the host can enter.
func (r *Runtime) OpenOutbound(ctx context.Context, id string) (egress.Outbound, error) {
	const op = "open outbound"
	sandbox := r.claims.sandbox(id)
	gvisor, err := r.runsGVisor(ctx, sandbox)
	if gvisor {
		return nil, proto.Errorf(proto.Unsupported, op, id, "programs in containers of the class gvisor reach their "+
			"network by the proxy alone")
	}
	var pid int
	if err == nil {
		pid, err = r.firstProcess(ctx, sandbox)
	}
	if err != nil {
		return nil, err
	}
	s, err := outbound.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	return s, nil
}

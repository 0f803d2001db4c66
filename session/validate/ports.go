package validate

import (
	"slices"

	"berth/proto"
)

// PublicPorts checks which ports a request makes public, on a daemon whose bound is most.
func PublicPorts(asked proto.PublicPorts, most proto.PortAccess) error {
	switch {
	case asked.IsZero():
		return nil
	case len(asked.Ports) > proto.MaxPublicPorts:
		return Error("public_ports", "public_ports lists %d ports; list at most %d, or use all", len(asked.Ports),
			proto.MaxPublicPorts)
	case slices.Contains(asked.Ports, 0):
		return Error("public_ports", "0 is not a port; use a number from 1 to 65535")
	case !most.Covers(proto.PortsPublic):
		return proto.Errorf(proto.PermissionDenied, "", "public_ports", "this daemon lets no port be public; its "+
			"operator can allow it with --ports-max public")
	}
	return nil
}

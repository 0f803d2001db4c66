package session

import (
	"context"
	"strings"

	"berth/guest"
	"berth/proto"
)

// An Inspector is a Runtime that can tell how a running sandbox is isolated. What is not told counts as not
// there: nobody is told of a separation that was not looked at.
type Inspector interface {
	Inspect(ctx context.Context, id string) (proto.Isolation, error)
}

// inspect finds out how the sandbox that just came up is isolated.
func (s *Session) inspect(ctx context.Context, hello guest.Hello) (proto.Isolation, error) {
	iso := proto.Isolation{HostUID: -1}
	if i, ok := s.core.cfg.Runtime.(Inspector); ok {
		var err error
		if iso, err = i.Inspect(ctx, s.id); err != nil {
			return iso, err
		}
	}
	if s.record().connected() && iso.Network == string(proto.NetworkNone) {
		iso.Network = proto.ThroughProxy
	}
	const longest = 128 // bytes; the guest is not trusted to be short
	iso.Kernel = strings.ToValidUTF8(hello.Kernel[:min(len(hello.Kernel), longest)], "")
	return iso, nil
}

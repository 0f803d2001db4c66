package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"

	"berth/egress"
	"berth/proto"
)

// The subset of SOCKS 5 for programs that do not speak HTTP: CONNECT without a password.
const (
	socksVersion = 5
	socksConnect = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4
)

// Answers to a request.
const (
	socksDone        = 0
	socksNotAllowed  = 2
	socksUnreachable = 4
	socksNoCommand   = 7
)

// socksCodes maps codes of refusals to answers. All other refusals are socksUnreachable.
var socksCodes = map[proto.Code]byte{proto.PermissionDenied: socksNotAllowed, proto.InvalidArgument: socksNotAllowed,
	proto.Unsupported: socksNoCommand}

// socks answers a connection that speaks SOCKS 5.
func (v *clientConn) socks(ctx context.Context) {
	var methods [255]byte
	if _, err := io.ReadFull(v.r, methods[:2]); err != nil {
		return
	}
	if _, err := io.ReadFull(v.r, methods[:methods[1]]); err != nil {
		return
	}
	if _, err := v.conn.Write([]byte{socksVersion, 0}); err != nil { // no authentication is needed
		return
	}
	t, err := v.socksTarget()
	if err != nil && !errors.As(err, new(*egress.Refusal)) {
		return // the client has disconnected
	}
	v.clearDeadline()
	p, err := v.openHost(ctx, "SOCKS5", t, err)
	if err != nil {
		v.sendSocks(cmp.Or(socksCodes[egress.RefusalOf(err).Code], socksUnreachable))
		return
	}
	defer p.Close()
	if v.sendSocks(socksDone) == nil {
		v.carryTunnel(ctx, t, p)
	}
}

// socksTarget reads what the client asks for.
func (v *clientConn) socksTarget() (egress.Target, error) {
	var b [258]byte
	if _, err := io.ReadFull(v.r, b[:4]); err != nil {
		return egress.Target{}, err
	}
	n := map[byte]int{socksIPv4: 4, socksIPv6: 16}[b[3]]
	kind, command := b[3], b[1]
	if kind == socksName {
		if _, err := io.ReadFull(v.r, b[:1]); err != nil {
			return egress.Target{}, err
		}
		n = int(b[0])
	}
	if n == 0 || b[0] == 0 && kind == socksName {
		return egress.Target{}, egress.BadTarget("the SOCKS request names no host")
	}
	if _, err := io.ReadFull(v.r, b[:n+2]); err != nil {
		return egress.Target{}, err
	}
	if command != socksConnect {
		return egress.Target{}, egress.Refuse(proto.Unsupported, "unsupported",
			"CONNECT is the only supported SOCKS command")
	}
	port := int(b[n])<<8 | int(b[n+1])
	host := string(b[:n])
	if kind != socksName {
		a, _ := netip.AddrFromSlice(b[:n])
		host = a.String()
	}
	return egress.ParseTarget(net.JoinHostPort(host, strconv.Itoa(port)), 0)
}

// sendSocks answers a request. The address in the answer has no meaning.
func (v *clientConn) sendSocks(code byte) error {
	_, err := v.conn.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

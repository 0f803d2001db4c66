// Package attacktest starts the daemon that tests attack. It gives containers any network, with names that lead inside,
// and has settings under which a missing check lets something through.
package attacktest

import (
	"fmt"
	"net"
	"net/netip"

	"berth/test/daemontest"
	"berth/test/egresstest"
)

// names are what the attacks ask for, and where each leads. A name with several addresses has a public one.
var names = map[string]string{
	"127.0.0.1.nip.io": "127.0.0.1", "169.254.169.254.nip.io": "169.254.169.254", "a9fea9fe.nip.io": "169.254.169.254",
	"localtest.me": "127.0.0.1 ::1", "metadata.google.internal": "169.254.169.254",
	"instance-data.ec2.internal": "169.254.169.254", "kubernetes.default.svc": "10.96.0.1",
	"host.docker.internal": "192.168.65.2", "example.com": "127.0.0.1",
	"make-93.184.216.34-and-10.0.0.1rr.1u.ms":        "93.184.216.34 10.0.0.1",
	"make-10.0.0.1-and-93.184.216.34rr.1u.ms":        "10.0.0.1 93.184.216.34",
	"make-93.184.216.34-and-127.0.0.1rr.1u.ms":       "93.184.216.34 127.0.0.1",
	"make-93.184.216.34-and-169.254.169.254rr.1u.ms": "93.184.216.34 169.254.169.254",
}

// upstream has the port of no server: a request for a model that is not refused ends with an error of the upstream.
const upstream = "http://127.0.0.1:9"

// Start starts a daemon with real containers, and a name server that lives until the process ends.
func Start() (*daemontest.Daemon, error) {
	server, err := egresstest.Start()
	if err != nil {
		return nil, err
	}
	for name, leads := range names {
		server.Set(name, leads)
	}
	flags := []string{"--stop-on-exit", "--network-max", "open", "--resolver", server.Addr, "--upstream", upstream,
		"--ports-max", "public"}
	own, err := ownRange()
	if err != nil {
		return nil, err
	}
	if own != "" {
		flags = append(flags, "--egress-allow-private", own)
	}
	return daemontest.New(flags...)
}

// ownRange returns a range of two addresses, of which the host has one. The daemon may allow it to containers: its own
// address in it must stay closed all the same. It is "" on a host that has loopback alone.
func ownRange() (string, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("listing the host's addresses: %w", err)
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().Is4() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		pair, err := p.Addr().Prefix(31)
		if err != nil {
			return "", err
		}
		return pair.String(), nil
	}
	return "", nil
}

package resolve

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"berth/egress"
	"berth/proto"
)

func newResolver(t *testing.T, private []netip.Prefix) *Resolver {
	t.Helper()
	r, err := New(private, "", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGuard checks that addresses that are not public are refused in every form, and metadata services even if the
// operator allows their network.
func TestGuard(t *testing.T) {
	g := newResolver(t, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("127.0.0.1/32")})
	for _, text := range strings.Fields(
		`0.0.0.0 10.0.0.1 10.2.0.1 100.64.0.1 127.0.0.2 127.255.255.254 172.16.0.1 172.31.255.255 192.168.1.1 192.0.0.1 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1
		255.255.255.255 169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254 fd20:ce::254 :: ::1 ::127.0.0.1 ::ffff:127.0.0.2 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1
		64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::a00:1 100::1 2001::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: 3fff::1 fc00::1 fd12::1 fe80::1 fe80::1%lo fec0::1 ff02::1 2606:4700:4700::1111%eth0`) {
		if err := g.Check(netip.MustParseAddr(text)); err == nil {
			t.Errorf("%s may be reached", text)
		} else if egress.RefusalOf(err).Code != proto.PermissionDenied {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range strings.Fields(
		`8.8.8.8 1.1.1.1 93.184.216.34 172.32.0.1 11.0.0.1 2606:4700:4700::1111 2a00:1450:4001::1 10.1.2.3 ::ffff:10.1.2.3 127.0.0.1 169.254.1.1`) {
		if err := g.Check(netip.MustParseAddr(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestGuardKnowsTheHost checks that the host's own addresses are refused, whether they are public or not.
func TestGuardKnowsTheHost(t *testing.T) {
	g := newResolver(t, nil)
	if g.isOwn(netip.MustParseAddr("8.8.8.8")) || !g.isOwn(netip.MustParseAddr("127.0.0.1")) {
		t.Error("it takes other hosts for its own, or its own for others")
	}
	g.own = append(g.own, netip.MustParseAddr("8.8.8.8")) // as if an interface had it
	if err := g.Check(netip.MustParseAddr("8.8.8.8")); err == nil {
		t.Error("an address of the host may be reached")
	}
	// a range that contains the address was not meant for it
	for text, want := range map[string]bool{"8.0.0.0/8": false, "8.8.8.8/32": true, "::/0": false} {
		g.private = []netip.Prefix{netip.MustParsePrefix(text)}
		if err := g.Check(netip.MustParseAddr("8.8.8.8")); (err == nil) != want {
			t.Errorf("with %s allowed: %v", text, err)
		}
	}
}

// TestGuardLooksBehindTranslators checks that the address behind a translator is checked too, even if the
// translator's addresses are allowed.
func TestGuardLooksBehindTranslators(t *testing.T) {
	g := newResolver(t, []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")})
	for text, want := range map[string]bool{"64:ff9b::808:808": true, "64:ff9b::a9fe:a9fe": false,
		"64:ff9b::a00:1": false, "64:ff9b::7f00:1": false} {
		if err := g.Check(netip.MustParseAddr(text)); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestMetadataIsNeverAllowed checks that the services that hand out credentials are refused by each of their
// addresses, and for that reason, although the operator allows all addresses.
func TestMetadataIsNeverAllowed(t *testing.T) {
	g := newResolver(t, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")})
	for _, text := range strings.Fields(
		`169.254.169.254 169.254.170.2 169.254.170.23 169.254.169.123 100.100.100.200 168.63.129.16 192.0.0.192
		fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fe80::a9fe:a9fe fe80::a9fe:a9fe%lo ::ffff:169.254.169.254
		64:ff9b::a9fe:a9fe 64:ff9b::a83f:8110`) {
		if err := g.Check(netip.MustParseAddr(text)); err == nil || egress.RefusalOf(err).Reason != "metadata_address" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAddressesAreJudged checks that a target that is an address is judged as one that a name leads to.
func TestAddressesAreJudged(t *testing.T) {
	g := newResolver(t, nil)
	for text, want := range map[string]bool{"8.8.8.8": true, "2606:4700:4700::1111": true, "10.0.0.1": false,
		"127.0.0.1": false, "169.254.169.254": false, "::1": false} {
		list, err := g.Resolve(t.Context(), egress.Target{Addr: netip.MustParseAddr(text), Port: 80})
		if (err == nil) != want || want && (len(list) != 1 || list[0].String() != text) {
			t.Errorf("%s: %v, %v", text, list, err)
		}
	}
}

// TestAddressesOfTheHostAreReadAgain checks that an address that the host gets later is refused soon.
func TestAddressesOfTheHostAreReadAgain(t *testing.T) {
	g := newResolver(t, nil)
	loopback := netip.MustParseAddr("127.0.0.1")
	if !g.isOwn(loopback) {
		t.Fatal("the host has no loopback")
	}
	g.own, g.seen = nil, g.seen.Add(-2*ownFor) // as if the interface was up only now
	if !g.isOwn(loopback) {
		t.Error("the host's addresses are not read again")
	}
}

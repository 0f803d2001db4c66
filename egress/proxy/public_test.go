package proxy

import (
	"net/netip"
	"testing"

	"berth/proto"
)

// TestReachOfAPublicDialer checks which addresses are refused before they are dialled.
func TestReachOfAPublicDialer(t *testing.T) {
	for hostPort, refused := range map[string]bool{
		"127.0.0.1:80": true, "localhost:443": true, "10.1.2.3:80": true, "[::1]:80": true, "169.254.169.254:80": true,
		"[::ffff:10.0.0.1]:80": true, "192.168.7.7:80": false, "1.1.1.1:443": false,
	} {
		d, err := NewPublicDialer([]netip.Prefix{netip.MustParsePrefix("192.168.7.0/24")}, "")
		if err != nil {
			t.Fatal(err)
		}
		err = d.Reach(t.Context(), hostPort)
		if (err != nil) != refused || refused && proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%s: %v", hostPort, err)
		}
	}
}

package resolve

import (
	"log/slog"
	"strings"
	"testing"

	"berth/egress"
	"berth/proto"
	"berth/test/egresstest"
)

// TestEveryAddressIsJudged checks that a name with one address that is refused is refused, in any order.
func TestEveryAddressIsJudged(t *testing.T) {
	names := egresstest.NewNameServer(t)
	r, err := New(nil, names.Addr, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	for leads, want := range map[string]bool{
		"8.8.8.8 1.1.1.1": true, "8.8.8.8 10.0.0.1": false, "10.0.0.1 8.8.8.8": false, "8.8.8.8 127.0.0.1": false,
		"8.8.8.8 1.1.1.1 169.254.169.254": false, "8.8.8.8 fd00:ec2::254": false, "8.8.8.8 ::1": false,
	} {
		names.Set("mixed.example", leads)
		list, err := r.Resolve(t.Context(), egress.Target{Name: "mixed.example", Port: 80})
		if want && (err != nil || len(list) != len(strings.Fields(leads))) {
			t.Errorf("%s: %v, %v", leads, list, err)
		}
		if !want && (err == nil || egress.RefusalOf(err).Code != proto.PermissionDenied) {
			t.Errorf("%s may be reached: %v, %v", leads, list, err)
		}
	}
}

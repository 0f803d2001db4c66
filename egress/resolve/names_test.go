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

// TestHostsFile checks that names of one label in /etc/hosts are found and judged, and that others go to the name
// server.
func TestHostsFile(t *testing.T) {
	names := egresstest.NewNameServer(t)
	r, err := New(nil, names.Addr, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	names.Set("short", "8.8.8.8")
	if list, err := r.Resolve(t.Context(), egress.Target{Name: "short", Port: 80}); err != nil || len(list) != 1 {
		t.Errorf("a name that the name server has: %v, %v", list, err)
	}
	for name, want := range map[string]string{"localhost": "private_address", "none": "no_such_host"} {
		list, err := r.Resolve(t.Context(), egress.Target{Name: name, Port: 80})
		if err == nil || egress.RefusalOf(err).Reason != want {
			t.Errorf("%s: %v, %v; want %s", name, list, err, want)
		}
	}
}

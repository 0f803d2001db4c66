package proxy

import (
	"net/netip"
	"testing"
	"time"

	"berth/egress"
	"berth/egress/names"
	"berth/proto"
)

// A container learns of names that its list has, at whatever port, and of no others: nobody is asked about those.
func TestLookUp(t *testing.T) {
	s := newSite(t, Config{DialTimeout: time.Minute}, proto.Network{Allow: []string{"web.test:8443", "*.star.test",
		"inner.test", "gone.test"}})
	for name, leads := range map[string]string{"web.test": "127.0.0.1", "a.star.test": "127.0.0.1",
		"inner.test": "127.0.0.2", "other.test": "127.0.0.1", "star.test": "127.0.0.1"} {
		s.names.Set(name, leads)
	}
	for name, want := range map[string]names.Verdict{
		"web.test": names.Exists, "a.star.test": names.Exists, "gone.test": names.Absent, "inner.test": names.Absent,
		"other.test": names.Absent, "star.test": names.Absent, "a.web.test": names.Absent, "127.0.0.1": names.Absent,
		"_sip._tcp.web.test": names.Absent, "web.test.web.test": names.Absent,
	} {
		if got := s.gate.lookUp(t.Context(), name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	s.await("a name that is not listed", func(v egress.Report) bool {
		return v.Reason == "not_allowed" && v.Host == "other.test" && v.Method == "DNS" && !v.Began
	})
	s.await("a private address", func(v egress.Report) bool {
		return v.Reason == "private_address" && v.Host == "inner.test"
	})
	for _, name := range []string{"other.test", "star.test", "a.web.test"} {
		if n := s.names.Asked(name); n != 0 {
			t.Errorf("the name server was asked %d times about %s", n, name)
		}
	}
}

// An address of the name server's stands for its name, any other for itself.
func TestTargetOf(t *testing.T) {
	s := newSite(t, Config{}, proto.Network{Mode: proto.NetworkOpen})
	for at, want := range map[string]string{"8.8.8.8:443": "8.8.8.8:443", "198.18.0.9:80": "old_address",
		"127.0.0.1:53": "127.0.0.1:53"} {
		got, err := s.gate.targetOf(netip.MustParseAddrPort(at))
		if text := got.String(); err == nil && text != want || err != nil && egress.RefusalOf(err).Reason != want {
			t.Errorf("%s: %s, %v; want %s", at, text, err, want)
		}
	}
}

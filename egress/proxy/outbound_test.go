package proxy

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

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
		if got := (source{s.gate}).LookUp(t.Context(), name); got != want {
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

// Records other than addresses are answered for hosts that the list has, if they lead only where containers may go. No
// name server hears of others, and every question is reported before it is asked.
func TestRecords(t *testing.T) {
	s := newSite(t, Config{DialTimeout: time.Minute}, proto.Network{Allow: []string{"web.test", "*.star.test",
		"inner.test", "mail.test", "void.test", "one.there.test", "mx.there.test", "gone.test"}})
	for name, has := range map[string]string{
		"web.test": "127.0.0.1 TXT=hello MX=mail.test", "_x._tcp.web.test": "SRV=5222:one.there.test SRV=5223:gone.test SRV=5224:other.test",
		"one.there.test": "127.0.0.1", "mail.test": "MX=mx.there.test", "mx.there.test": "127.0.0.1",
		"_in._tcp.web.test": "SRV=80:web.test SRV=80:inner.test", "inner.test": "127.0.0.2 TXT=secret MX=web.test",
		"_x._tcp.inner.test": "SRV=80:web.test", "_x._tcp.a.star.test": "SRV=80:web.test", "void.test": "TXT=secret",
		"_gone._tcp.web.test": "SRV=80:gone.test", "_http._tcp.web.test": "SRV=80:front.test",
		"_db._tcp.void.test": "SRV=80:shard.test", "front.test": "127.0.0.1", "shard.test": "127.0.0.1", "other.test": "127.0.0.1 TXT=other MX=web.test",
		"_x._tcp.other.test": "SRV=80:web.test", "_secret._x._tcp.web.test": "SRV=80:web.test",
		"_abcdefghijklmnop._tcp.web.test": "SRV=80:web.test", "_x.web.test": "TXT=hello SRV=80:web.test",
	} {
		s.names.Set(name, has)
	}
	const srv, mx, txt = dnsmessage.TypeSRV, dnsmessage.TypeMX, dnsmessage.TypeTXT
	for _, c := range []struct {
		kind dnsmessage.Type
		name string
		says names.Verdict
		want int // records
	}{
		{txt, "web.test", names.Exists, 1}, {mx, "web.test", names.Exists, 0}, // mail.test has no address
		{srv, "_x._tcp.web.test", names.Exists, 1}, {mx, "mail.test", names.Exists, 1},
		{srv, "_x._tcp.a.star.test", names.Exists, 1}, {srv, "_gone._tcp.web.test", names.Exists, 0},
		{srv, "_http._tcp.web.test", names.Exists, 0}, {srv, "_db._tcp.void.test", names.Absent, 0}, // not on the list
		{srv, "_none._tcp.web.test", names.Absent, 0}, {srv, "web.test", names.Exists, 0},
		{mx, "inner.test", names.Exists, 1}, {srv, "_x._tcp.inner.test", names.Exists, 1},
		{txt, "inner.test", names.Absent, 0}, {srv, "_in._tcp.web.test", names.Absent, 0},
		{txt, "void.test", names.Absent, 0}, // nothing says whose it is
		{txt, "other.test", names.Absent, 0}, {mx, "other.test", names.Absent, 0},
		{srv, "_x._tcp.other.test", names.Absent, 0}, {srv, "_secret._x._tcp.web.test", names.Absent, 0},
		{srv, "_abcdefghijklmnop._tcp.web.test", names.Absent, 0}, {srv, "_x.web.test", names.Absent, 0},
		{txt, "_x.web.test", names.Absent, 0},
	} {
		list, says := source{s.gate}.Records(t.Context(), c.name, c.kind)
		if says != c.says || len(list) != c.want {
			t.Errorf("%v of %s: %v, %v; want %v, %d records", c.kind, c.name, says, list, c.says, c.want)
		}
	}
	for _, name := range []string{"other.test", "front.test", "shard.test", "_x._tcp.other.test", "_secret._x._tcp.web.test", "_x.web.test",
		"_abcdefghijklmnop._tcp.web.test"} {
		if n := s.names.Asked(name); n != 0 {
			t.Errorf("the name server was asked %d times about %s", n, name)
		}
	}
	for _, method := range []string{"DNS", "DNS SRV", "DNS MX", "DNS TXT"} {
		s.await(method, func(v egress.Report) bool {
			return v.Began && v.Method == method && v.Host != "" && v.Port == 53 && v.Outcome == proto.AuditOK
		})
	}
	s.await("a refused host of a service", func(v egress.Report) bool {
		return v.Reason == "not_allowed" && v.Host == "other.test" && v.Method == "DNS SRV"
	})
	v := s.await("an unlisted host of a service", func(v egress.Report) bool {
		return v.Reason == "not_allowed" && v.Host == "void.test" && v.Method == "DNS SRV"
	})
	if want := `add "shard.test" to its network.allow`; !strings.Contains(v.Note, want) {
		t.Errorf("it says %q, not %q", v.Note, want)
	}
	s.mu.Lock()
	if i := slices.IndexFunc(s.visits, func(v egress.Report) bool { return strings.Contains(v.Note, "front.test") }); i >= 0 {
		t.Errorf("a program that has an address to go on with is told %+v", s.visits[i])
	}
	s.mu.Unlock()
	s.await("a private host of a service", func(v egress.Report) bool {
		return v.Reason == "private_address" && v.Host == "web.test" && v.Method == "DNS SRV"
	})
}

// A name that is asked for again and again is reported once. Nobody is asked while nothing can be recorded.
func TestQuestionsAreReported(t *testing.T) {
	var unready atomic.Bool
	s := newSite(t, Config{DialTimeout: time.Minute, Ready: func() error {
		if unready.Load() {
			return errors.New("the disk is full")
		}
		return nil
	}}, proto.Network{Mode: proto.NetworkOpen})
	s.names.Set("web.test", "127.0.0.1")
	s.names.Set("new.test", "127.0.0.1")
	for range 3 {
		if got := (source{s.gate}).LookUp(t.Context(), "web.test"); got != names.Exists {
			t.Errorf("%v", got)
		}
	}
	s.mu.Lock()
	if len(s.visits) != 1 || !s.visits[0].Began || s.visits[0].Host != "web.test" {
		t.Errorf("reported: %+v", s.visits)
	}
	s.mu.Unlock()
	unready.Store(true)
	if got := (source{s.gate}).LookUp(t.Context(), "new.test"); got != names.Unknown || s.names.Asked("new.test") > 0 {
		t.Errorf("without a log: %v, asked %d times", got, s.names.Asked("new.test"))
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

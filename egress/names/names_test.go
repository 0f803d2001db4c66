package names

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// zone is a source that knows names below "there.".
type zone struct{}

func (zone) LookUp(_ context.Context, name string) Verdict {
	switch {
	case strings.HasSuffix(name, "there"):
		return Exists
	case name == "slow":
		return Unknown
	}
	return Absent
}

func (z zone) Records(ctx context.Context, name string, kind dnsmessage.Type) ([]dnsmessage.ResourceBody, Verdict) {
	text := map[string][]string{"a.there": {"one", "two"}, "long.there": make([]string, 300),
		"middle.there": make([]string, 900), "longer.there": make([]string, 3000)}[name]
	if kind != dnsmessage.TypeTXT || text == nil {
		return nil, z.LookUp(ctx, name)
	}
	return []dnsmessage.ResourceBody{&dnsmessage.TXTResource{TXT: text}}, Exists
}

func server() *Server { return New(zone{}) }

// askFor asks by UDP, or by TCP if most is MaxStream, and returns the answer. size is how long the program says that it may be, or 0.
func askFor(t *testing.T, s *Server, name string, kind dnsmessage.Type, size, most int) dnsmessage.Message {
	t.Helper()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind,
			Class: dnsmessage.ClassINET}}}
	if size > 0 {
		r := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
		if err := r.Header.SetEDNS0(size, 0, true); err != nil {
			t.Fatal(err)
		}
		q.Additionals = []dnsmessage.Resource{r}
	}
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer := s.Answer(t.Context(), b, most)
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		t.Fatal(err)
	}
	if m.ID != 77 || !m.Response || !m.RecursionAvailable || len(m.Questions) != 1 ||
		m.Questions[0].Name.String() != name || len(m.Additionals) != len(q.Additionals) ||
		len(answer) > max(512, min(size, most)) && most <= MaxMessage {
		t.Errorf("%s: %d bytes, %+v", name, len(answer), m)
	}
	return m
}

// ask asks for a name, and returns the answer.
func ask(t *testing.T, s *Server, name string, kind dnsmessage.Type) dnsmessage.Message {
	t.Helper()
	return askFor(t, s, name, kind, 0, MaxMessage)
}

// addressOf asks for the address of a name, which must be there.
func addressOf(t *testing.T, s *Server, name string) netip.Addr {
	t.Helper()
	m := ask(t, s, name, dnsmessage.TypeA)
	if m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 1 {
		t.Fatalf("%s: %v, %d answers", name, m.RCode, len(m.Answers))
	}
	a := netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A)
	if !Pool.Contains(a) || m.Answers[0].Header.TTL != ttl {
		t.Errorf("%s has %v for %d s", name, a, m.Answers[0].Header.TTL)
	}
	return a
}

// Each name has one address, in whatever case it is asked for, and the address stands for the name.
func TestAddresses(t *testing.T) {
	s := server()
	seen := map[netip.Addr]string{}
	for i := range 1000 {
		name := fmt.Sprintf("n%d.there", i)
		a := addressOf(t, s, name+".")
		if again := addressOf(t, s, strings.ToUpper(name)+"."); again != a {
			t.Fatalf("%s has %v, then %v", name, a, again)
		}
		if other, taken := seen[a]; taken || s.Name(a) != name {
			t.Fatalf("%v of %s stands for %q, and was given to %q", a, name, s.Name(a), other)
		}
		seen[a] = name
	}
	for _, text := range []string{"198.18.0.0", "198.18.3.233", "198.18.255.255", "198.19.0.1", "8.8.8.8", "::1"} {
		if name := s.Name(netip.MustParseAddr(text)); name != "" {
			t.Errorf("%s stands for %q", text, name)
		}
	}
}

// When all addresses are used, the name that got its own first loses it.
func TestAddressesAreGivenAgain(t *testing.T) {
	s := server()
	first, second := s.address("first"), s.address("second")
	for i := range count - 2 {
		s.address(fmt.Sprint(i))
	}
	if s.Name(first) != "first" {
		t.Fatalf("%v was given again too early, to %q", first, s.Name(first))
	}
	if got := s.address("new"); got != first || s.Name(first) != "new" || s.Name(second) != "second" {
		t.Errorf("the new name has %v; %v stands for %q, %v for %q", got, first, s.Name(first), second, s.Name(second))
	}
	if got := s.address("first"); got != second {
		t.Errorf("the first name has %v, want %v", got, second)
	}
}

// What is not an address is answered without one, and what is not there with its reason.
func TestOtherAnswers(t *testing.T) {
	s := server()
	for name, c := range map[string]struct {
		kind dnsmessage.Type
		code dnsmessage.RCode
	}{
		"a.there.": {dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess},
		"b.there.": {dnsmessage.TypeTXT, dnsmessage.RCodeSuccess},
		"c.there.": {dnsmessage.TypeMX, dnsmessage.RCodeSuccess},
		"h.there.": {65, dnsmessage.RCodeSuccess}, // HTTPS
		"d.gone.":  {dnsmessage.TypeA, dnsmessage.RCodeNameError},
		"e.gone.":  {dnsmessage.TypeAAAA, dnsmessage.RCodeNameError},
		"slow.":    {dnsmessage.TypeA, dnsmessage.RCodeServerFailure},
		".":        {dnsmessage.TypeNS, dnsmessage.RCodeRefused},

		"8.8.8.8.in-addr.arpa.":      {dnsmessage.TypePTR, dnsmessage.RCodeNameError},
		"18.198.in-addr.arpa.":       {dnsmessage.TypePTR, dnsmessage.RCodeNameError},
		"in-addr.arpa.":              {dnsmessage.TypeNS, dnsmessage.RCodeNameError},
		"1.0.ip6.arpa.":              {dnsmessage.TypePTR, dnsmessage.RCodeNameError},
		"1.0.18.198.in-addr.arpa.":   {dnsmessage.TypePTR, dnsmessage.RCodeNameError}, // given to none
		"there.8.8.8.in-addr.arpa.":  {dnsmessage.TypePTR, dnsmessage.RCodeNameError},
		"x.1.0.18.198.in-addr.arpa.": {dnsmessage.TypeA, dnsmessage.RCodeNameError},
	} {
		if m := ask(t, s, name, c.kind); m.RCode != c.code || len(m.Answers)+len(m.Authorities) > 0 {
			t.Errorf("%s %v: %v with %v", name, c.kind, m.RCode, m.Answers)
		}
	}
}

// An address that was given to a name leads back to it. A question for anything has the address.
func TestReverse(t *testing.T) {
	s := server()
	a := addressOf(t, s, "a.there.").As4()
	reverse := fmt.Sprintf("%d.%d.%d.%d.In-Addr.arpa.", a[3], a[2], a[1], a[0])
	for _, kind := range []dnsmessage.Type{dnsmessage.TypePTR, dnsmessage.TypeALL, dnsmessage.TypeA} {
		m := ask(t, s, reverse, kind)
		if kind == dnsmessage.TypeA && m.RCode == 0 && len(m.Answers) == 0 {
			continue
		}
		if len(m.Answers) != 1 || m.Answers[0].Body.GoString() != (&dnsmessage.PTRResource{
			PTR: dnsmessage.MustNewName("a.there.")}).GoString() {
			t.Errorf("%v: %v, %v", kind, m.RCode, m.Answers)
		}
	}
	if m := ask(t, s, "a.there.", dnsmessage.TypeALL); len(m.Answers) != 1 ||
		m.Answers[0].Header.Type != dnsmessage.TypeA {
		t.Errorf("of any kind: %v", m.Answers)
	}
}

// Answers are as long as the program and the way take; longer ones say that they are cut.
func TestLongAnswers(t *testing.T) {
	s := server()
	for _, c := range []struct {
		name       string
		size, most int
		whole      bool
	}{
		{"a.there.", 0, MaxMessage, true}, {"a.there.", 4096, MaxMessage, true}, {"long.there.", 4096, MaxStream, true},
		{"long.there.", 0, MaxStream, true}, {"long.there.", 512, MaxMessage, true}, {"long.there.", 0, MaxMessage, true},
		{"longer.there.", 4096, MaxMessage, false}, {"longer.there.", 0, MaxMessage, false},
		{"longer.there.", 0, MaxStream, true}, {"longer.there.", 1, MaxMessage, false},
		{"middle.there.", 1200, MaxMessage, true}, {"middle.there.", 512, MaxMessage, false},
		{"middle.there.", 0, MaxMessage, false},
	} {
		m := askFor(t, s, c.name, dnsmessage.TypeTXT, c.size, c.most)
		if m.RCode != 0 || m.Truncated == c.whole || (len(m.Answers) == 1) != c.whole {
			t.Errorf("%+v: %v, cut %t, %d answers", c, m.RCode, m.Truncated, len(m.Answers))
		}
	}
}

// Options of a version that is not known, and two sets of them, are refused as RFC 6891 says.
func TestOptions(t *testing.T) {
	s := server()
	ask := func(opts ...uint32) dnsmessage.Message {
		q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a.there."),
			Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		for _, ttl := range opts {
			q.Additionals = append(q.Additionals, dnsmessage.Resource{Body: &dnsmessage.OPTResource{},
				Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeOPT,
					Class: 1232, TTL: ttl}})
		}
		b, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(s.Answer(t.Context(), b, MaxMessage)); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := ask(0); m.RCode != 0 || len(m.Answers) != 1 || len(m.Additionals) != 1 {
		t.Errorf("options: %+v", m)
	}
	if m := ask(1 << 16); len(m.Answers) != 0 || len(m.Additionals) != 1 ||
		m.Additionals[0].Header.ExtendedRCode(m.RCode) != badVersion {
		t.Errorf("another version: %+v", m)
	}
	if m := ask(0, 0); m.RCode != dnsmessage.RCodeFormatError || len(m.Answers) != 0 {
		t.Errorf("two sets of options: %+v", m)
	}
}

// Nothing but a question is answered, and no message is too odd.
func FuzzAnswer(f *testing.F) {
	q, _ := (&dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a.there."),
		Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}).Pack()
	f.Add(q)
	answer, _ := (&dnsmessage.Message{Header: dnsmessage.Header{Response: true}}).Pack()
	f.Add(answer)
	f.Add([]byte{})
	s := server()
	f.Fuzz(func(t *testing.T, message []byte) {
		answer := s.Answer(t.Context(), message, MaxMessage)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || len(message) < 12 || message[2]&0x80 != 0 || !m.Response ||
			len(answer) > MaxMessage {
			t.Fatalf("%x is answered by %x (%v)", message, answer, err)
		}
	})
}

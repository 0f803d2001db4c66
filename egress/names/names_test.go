package names

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// server knows names below "there.".
func server() *Server {
	return New(func(_ context.Context, name string) Verdict {
		switch {
		case strings.HasSuffix(name, "there"):
			return Exists
		case name == "slow":
			return Unknown
		}
		return Absent
	})
}

// ask asks for a name, and returns the answer.
func ask(t *testing.T, s *Server, name string, kind dnsmessage.Type) dnsmessage.Message {
	t.Helper()
	q, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind,
			Class: dnsmessage.ClassINET}}}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(s.Answer(t.Context(), q)); err != nil {
		t.Fatal(err)
	}
	if m.ID != 77 || !m.Response || !m.RecursionAvailable || len(m.Questions) != 1 ||
		m.Questions[0].Name.String() != name {
		t.Errorf("%s: %+v", name, m)
	}
	return m
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
		"c.there.": {dnsmessage.TypeALL, dnsmessage.RCodeSuccess},
		"d.gone.":  {dnsmessage.TypeA, dnsmessage.RCodeNameError},
		"e.gone.":  {dnsmessage.TypeAAAA, dnsmessage.RCodeNameError},
		"slow.":    {dnsmessage.TypeA, dnsmessage.RCodeServerFailure},
		".":        {dnsmessage.TypeNS, dnsmessage.RCodeRefused},
	} {
		if m := ask(t, s, name, c.kind); m.RCode != c.code || len(m.Answers)+len(m.Authorities) > 0 {
			t.Errorf("%s %v: %v with %v", name, c.kind, m.RCode, m.Answers)
		}
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
		answer := s.Answer(t.Context(), message)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || len(message) < 12 || message[2]&0x80 != 0 || !m.Response ||
			len(answer) > MaxMessage+16 {
			t.Fatalf("%x is answered by %x (%v)", message, answer, err)
		}
	})
}

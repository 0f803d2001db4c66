// Package egresstest gives tests a name server whose answers they choose, and may change between questions.
package egresstest

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// A NameServer answers questions about the names that a test gives it.
type NameServer struct {
	Addr string // host:port, for UDP

	conn net.PacketConn
	done chan struct{}

	mu    sync.Mutex // guards what follows
	names map[string][]string
	asked map[string]int // all questions but those for addresses of IPv6
}

// NewNameServer starts a name server that knows no name. It stops at the end of the test.
func NewNameServer(t testing.TB) *NameServer {
	t.Helper()
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Start starts a name server for many tests. The caller closes it.
func Start() (*NameServer, error) { return StartAt("127.0.0.1:0") }

// StartAt is Start at an address, for programs that only ask at port 53.
func StartAt(addr string) (*NameServer, error) {
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, err
	}
	s := &NameServer{Addr: c.LocalAddr().String(), conn: c, done: make(chan struct{}), names: map[string][]string{},
		asked: map[string]int{}}
	go s.serve()
	return s, nil
}

// Close stops the server.
func (s *NameServer) Close() error {
	err := s.conn.Close()
	<-s.done
	return err
}

func (s *NameServer) serve() {
	defer close(s.done)
	b := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if answer := s.answer(b[:n]); answer != nil {
			_, _ = s.conn.WriteTo(answer, from)
		}
	}
}

// Set sets the answers for a name, one for each question. An answer has addresses with blanks between them, and other
// records: "SRV=80:host", "MX=host", "TXT=text", of which a question gets those of its kind. The last answer is
// repeated. The name *.x is for all names right below x that have no answers of their own.
func (s *NameServer) Set(name string, answers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name] = answers
}

// Asked returns how often the name was asked for. A question for addresses counts once.
func (s *NameServer) Asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

// answer returns the answer to a packet, or nil if there is none.
func (s *NameServer) answer(b []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(b) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true},
		Questions: m.Questions}
	addrs, known := s.next(strings.TrimSuffix(q.Name.String(), "."), q.Type)
	if !known {
		out.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		if r, ok := resource(q, a); ok {
			out.Answers = append(out.Answers, r)
		}
	}
	packed, err := out.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// next returns the answer about a name. Questions come in pairs, for IPv4 and IPv6; the first one is counted.
func (s *NameServer) next(name string, kind dnsmessage.Type) (addrs []string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind != dnsmessage.TypeAAAA {
		s.asked[name]++
	}
	answers, known := s.names[name]
	if !known {
		_, parent, _ := strings.Cut(name, ".")
		name = "*." + parent
		answers, known = s.names[name]
	}
	if !known {
		return nil, false
	}
	if kind == dnsmessage.TypeA && len(answers) > 1 {
		s.names[name] = answers[1:]
	}
	return strings.Fields(answers[0]), true
}

// resource returns a record as an answer, if the question asks for its kind.
func resource(q dnsmessage.Question, text string) (r dnsmessage.Resource, ok bool) {
	r.Header = dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
	kind, value, isOther := strings.Cut(text, "=")
	switch {
	case !isOther:
		a := netip.MustParseAddr(text)
		if q.Type == dnsmessage.TypeA && a.Is4() {
			r.Body = &dnsmessage.AResource{A: a.As4()}
		} else if q.Type == dnsmessage.TypeAAAA && a.Is6() {
			r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		}
	case "Type"+kind != q.Type.String():
	case kind == "SRV":
		port, host, _ := strings.Cut(value, ":")
		n, _ := strconv.Atoi(port)
		r.Body = &dnsmessage.SRVResource{Port: uint16(n), Target: dnsmessage.MustNewName(host + ".")}
	case kind == "MX":
		r.Body = &dnsmessage.MXResource{MX: dnsmessage.MustNewName(value + ".")}
	case kind == "TXT":
		r.Body = &dnsmessage.TXTResource{TXT: []string{value}}
	}
	return r, r.Body != nil
}

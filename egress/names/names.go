// Package names is the name server of one container: it answers with addresses of its own, and remembers which name
// each stands for. So a connection to such an address is for one name, as a request to the proxy is, and nothing that a
// program asks reaches a name server by itself.
//
// The caller decides which names there are, and what SRV, MX and TXT records they have. The addresses are from
// 198.18.0.0/16, which no host of the internet has (RFC 2544); they mean something to this container alone. A question
// for the name of such an address is answered from memory. Other names of addresses are none, and nobody is asked.
//
// Names have no IPv6 address, and no record that would lead past their own address, such as HTTPS.
package names

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// ttl is how long programs may keep an answer, in seconds. It is short, since an address is given to another name when
// all have been used, and the next daemon does not know them.
const ttl = 30

// Bounds of messages, in bytes.
const (
	MaxMessage = 1232    // by UDP: fits every link (DNS flag day 2020)
	MaxStream  = 1 << 15 // of an answer by TCP

	plainMessage = 512 // of an answer by UDP to a program that does not say how much it takes (RFC 1035)
)

// first and count are the addresses that names get: 198.18.0.1 to 198.18.255.254.
var first = netip.MustParseAddr("198.18.0.1")

const count = 0xfffe

// Pool is the network that names get addresses of.
var Pool = netip.MustParsePrefix("198.18.0.0/16")

// A Verdict is what there is to say of a name.
type Verdict int

// The verdicts.
const (
	Exists  Verdict = iota
	Absent          // there is no such name, or not for this container
	Unknown         // it cannot be said now
)

// A Source says what there is to say of names, which are lower case and have no final dot.
type Source interface {
	// LookUp says whether there is a host of that name.
	LookUp(ctx context.Context, name string) Verdict
	// Records returns the SRV, MX or TXT records of a name that exists; there may be none.
	Records(ctx context.Context, name string, kind dnsmessage.Type) ([]dnsmessage.ResourceBody, Verdict)
}

// A Server knows the names of one container. It is safe for concurrent use.
type Server struct {
	source Source

	mu     sync.Mutex // guards what follows
	names  []string   // by number of the address
	places map[string]int
	next   int
}

// New makes a server.
func New(source Source) *Server { return &Server{source: source, places: map[string]int{}} }

// Name returns the name that an address stands for, or "".
func (s *Server) Name(a netip.Addr) string {
	if !Pool.Contains(a) {
		return ""
	}
	b := a.As4()
	at := int(b[2])<<8 + int(b[3]) - 1
	s.mu.Lock()
	defer s.mu.Unlock()
	if at < 0 || at >= len(s.names) {
		return ""
	}
	return s.names[at]
}

// address returns the address of a name. When all are used, the oldest name loses its own.
func (s *Server) address(name string) netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.places[name]
	if !known {
		at = s.next
		if s.next = (at + 1) % count; at < len(s.names) {
			delete(s.places, s.names[at])
			s.names[at] = name
		} else {
			s.names = append(s.names, name)
		}
		s.places[name] = at
	}
	b := first.As4()
	n := at + 1
	b[2], b[3] = byte(n>>8), byte(n)
	return netip.AddrFrom4(b)
}

// Answer answers one message with at most that many bytes. It returns nil for what is no question. An answer that
// would be longer is empty and says so: the program asks again by TCP.
func (s *Server) Answer(ctx context.Context, message []byte, most int) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil || h.Response {
		return nil
	}
	answer := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode,
		RecursionDesired: h.RecursionDesired, RecursionAvailable: true}}
	q, err := p.Question()
	if err == nil {
		answer.Questions = []dnsmessage.Question{q}
	}
	switch options, found, bad := readOptions(&p); {
	case err != nil || bad:
		answer.RCode = dnsmessage.RCodeFormatError
	case h.OpCode != 0:
		answer.RCode = dnsmessage.RCodeNotImplemented
	case found && options.version() > 0:
		answer.Additionals = []dnsmessage.Resource{ownOptions(badVersion)}
	default:
		if found {
			answer.Additionals = []dnsmessage.Resource{ownOptions(dnsmessage.RCodeSuccess)}
		}
		s.answer(ctx, &answer, q)
		most = min(most, max(plainMessage, options.size(most)))
	}
	return pack(answer, most)
}

// pack returns a message with at most that many bytes.
func pack(m dnsmessage.Message, most int) []byte {
	b, err := m.Pack()
	if err == nil && len(b) > most {
		m.Answers, m.Truncated = nil, true
		b, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return b
}

// answer answers one question.
func (s *Server) answer(ctx context.Context, m *dnsmessage.Message, q dnsmessage.Question) {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	if q.Class != dnsmessage.ClassINET || name == "" {
		m.RCode = dnsmessage.RCodeRefused
		return
	}
	bodies, verdict := s.find(ctx, name, q.Type)
	switch verdict {
	case Absent:
		m.RCode = dnsmessage.RCodeNameError
	case Unknown:
		m.RCode = dnsmessage.RCodeServerFailure
	case Exists:
		for _, b := range bodies {
			kind := q.Type
			if kind == dnsmessage.TypeALL { // an address stands for all there is (RFC 8482)
				kind = dnsmessage.TypeA
			}
			m.Answers = append(m.Answers, dnsmessage.Resource{Body: b, Header: dnsmessage.ResourceHeader{Name: q.Name,
				Class: q.Class, Type: kind, TTL: ttl}})
		}
	}
}

// find returns the records that answer a question.
func (s *Server) find(ctx context.Context, name string, kind dnsmessage.Type) ([]dnsmessage.ResourceBody, Verdict) {
	if a, reverse := addressIn(name); reverse {
		return s.nameOf(a, kind)
	}
	switch kind {
	case dnsmessage.TypeSRV, dnsmessage.TypeMX, dnsmessage.TypeTXT:
		return s.source.Records(ctx, name, kind)
	}
	verdict := s.source.LookUp(ctx, name)
	if verdict != Exists || kind != dnsmessage.TypeA && kind != dnsmessage.TypeALL {
		return nil, verdict
	}
	return []dnsmessage.ResourceBody{&dnsmessage.AResource{A: s.address(name).As4()}}, Exists
}

// nameOf answers a question for the name of an address.
func (s *Server) nameOf(a netip.Addr, kind dnsmessage.Type) ([]dnsmessage.ResourceBody, Verdict) {
	name, err := dnsmessage.NewName(s.Name(a) + ".")
	switch {
	case err != nil || name.Length == 1:
		return nil, Absent
	case kind != dnsmessage.TypePTR && kind != dnsmessage.TypeALL:
		return nil, Exists
	}
	return []dnsmessage.ResourceBody{&dnsmessage.PTRResource{PTR: name}}, Exists
}

// addressIn returns the IPv4 address in a name such as 7.0.18.198.in-addr.arpa, and whether the name is one for
// addresses of any kind.
func addressIn(name string) (a netip.Addr, reverse bool) {
	if name == "ip6.arpa" || strings.HasSuffix(name, ".ip6.arpa") {
		return a, true
	}
	text, reverse := strings.CutSuffix("."+name, ".in-addr.arpa")
	labels := strings.Split(strings.TrimPrefix(text, "."), ".")
	slices.Reverse(labels)
	a, _ = netip.ParseAddr(strings.Join(labels, ".")) // a part of an address is none
	return a, reverse
}

// Package names is the name server of one container: it answers with addresses of its own, and remembers which name
// each stands for. So a connection to such an address is for one name, as a request to the proxy is, and nothing that a
// program asks reaches a name server by itself.
//
// The caller decides which names there are. The addresses are from 198.18.0.0/15, which no host of the internet has
// (RFC 2544); they mean something to this container alone.
package names

import (
	"context"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// ttl is how long programs may keep an answer, in seconds. It is short, since an address is given to another name when
// all have been used, and the next daemon does not know them.
const ttl = 30

// MaxMessage bounds a question and an answer, in bytes: what every program takes by UDP.
const MaxMessage = 512

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

// A Lookup says what there is to say of a name, which is lower case and has no final dot.
type Lookup func(ctx context.Context, name string) Verdict

// A Server knows the names of one container. It is safe for concurrent use.
type Server struct {
	lookup Lookup

	mu     sync.Mutex // guards what follows
	names  []string   // by number of the address
	places map[string]int
	next   int
}

// New makes a server.
func New(lookup Lookup) *Server { return &Server{lookup: lookup, places: map[string]int{}} }

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

// Answer answers one message. It returns nil for what is no question.
func (s *Server) Answer(ctx context.Context, message []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil || h.Response {
		return nil
	}
	answer := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode,
		RecursionDesired: h.RecursionDesired, RecursionAvailable: true}}
	q, err := p.Question()
	switch {
	case err != nil:
		answer.RCode = dnsmessage.RCodeFormatError
	case h.OpCode != 0:
		answer.RCode = dnsmessage.RCodeNotImplemented
	default:
		answer.Questions = []dnsmessage.Question{q}
		s.answer(ctx, &answer, q)
	}
	b, err := answer.Pack()
	if err != nil {
		return nil
	}
	return b
}

// answer answers one question. Names have IPv4 addresses alone: of any other kind of record there is none.
func (s *Server) answer(ctx context.Context, m *dnsmessage.Message, q dnsmessage.Question) {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	if q.Class != dnsmessage.ClassINET || name == "" {
		m.RCode = dnsmessage.RCodeRefused
		return
	}
	switch s.lookup(ctx, name) {
	case Absent:
		m.RCode = dnsmessage.RCodeNameError
	case Unknown:
		m.RCode = dnsmessage.RCodeServerFailure
	case Exists:
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type, TTL: ttl},
				Body:   &dnsmessage.AResource{A: s.address(name).As4()},
			}}
		}
	}
}

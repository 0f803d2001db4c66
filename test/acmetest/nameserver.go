package acmetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// The TSIG key that the name server takes updates with.
const (
	Key    = "berth-test."
	Secret = "c2VjcmV0LW9mLXRoZS10ZXN0LWtleS0wMTIzNDU2Nzg="
)

// Zone is the zone of the name server. Each name in it that has no records has the address of this machine.
const Zone = "zone.test."

// A NameServer has one zone and takes updates of its TXT records (RFC 2136).
type NameServer struct {
	Address string // HOST:PORT, over TCP and UDP

	mu      sync.Mutex
	texts   map[string][]string
	aliases map[string]string
	added   int
	dropped bool
}

// StartNameServer starts a name server that ends with the test.
func StartNameServer(t *testing.T) *NameServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &NameServer{Address: l.Addr().String(), texts: map[string][]string{}, aliases: map[string]string{}}
	serve(t, l, s)
	return s
}

func serve(t *testing.T, l net.Listener, h dns.Handler) {
	server := &dns.Server{Listener: l, Handler: h, TsigSecret: map[string]string{Key: Secret},
		MsgAcceptFunc: func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
}

// Resolver starts a server that follows aliases, as an authority's does, and returns its address.
func (s *NameServer) Resolver(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		m := new(dns.Msg).SetReply(r)
		for q := r.Question[0]; len(m.Answer) < 10; {
			s.query(m, q)
			alias := s.aliases[dns.CanonicalName(q.Name)]
			if alias == "" {
				break
			}
			q.Name = alias
		}
		_ = w.WriteMsg(m)
	}))
	return l.Addr().String()
}

// Alias makes a name an alias of another (CNAME). The server itself answers with the alias alone.
func (s *NameServer) Alias(name, of string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aliases[dns.CanonicalName(name)] = dns.CanonicalName(of)
}

// Put adds a TXT value of a name, as a server does that takes it otherwise than by an update.
func (s *NameServer) Put(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[dns.CanonicalName(name)] = append(s.texts[dns.CanonicalName(name)], value)
}

// Texts returns the TXT values of a name, and how many were ever added to any.
func (s *NameServer) Texts(name string) (now []string, added int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.texts[dns.CanonicalName(name)]), s.added
}

// Drop makes the server accept updates and forget them, like a zone that is not served yet.
func (s *NameServer) Drop(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = on
}

// ServeDNS implements dns.Handler.
func (s *NameServer) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := new(dns.Msg).SetReply(r)
	m.Authoritative = true
	switch {
	case r.Opcode == dns.OpcodeUpdate && (r.IsTsig() == nil || w.TsigStatus() != nil):
		m.Rcode = dns.RcodeNotAuth
	case r.Opcode == dns.OpcodeUpdate:
		s.update(r.Ns)
		m.SetTsig(Key, dns.HmacSHA256, 300, time.Now().Unix())
	case len(r.Question) == 1:
		s.query(m, r.Question[0])
	}
	_ = w.WriteMsg(m)
}

func (s *NameServer) update(changes []dns.RR) {
	for _, rr := range changes {
		txt, ok := rr.(*dns.TXT)
		if !ok {
			continue
		}
		name := dns.CanonicalName(txt.Hdr.Name)
		value := strings.Join(txt.Txt, "")
		s.texts[name] = slices.DeleteFunc(s.texts[name], func(have string) bool { return have == value })
		if txt.Hdr.Class == dns.ClassINET {
			s.added++
			if !s.dropped {
				s.texts[name] = append(s.texts[name], value)
			}
		}
	}
}

func (s *NameServer) query(m *dns.Msg, q dns.Question) {
	header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}
	soa := &dns.SOA{Hdr: dns.RR_Header{Name: Zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET}, Ns: "ns." + Zone,
		Mbox: "root." + Zone}
	values := s.texts[dns.CanonicalName(q.Name)]
	alias := s.aliases[dns.CanonicalName(q.Name)]
	switch {
	case alias != "":
		header.Rrtype = dns.TypeCNAME
		m.Answer = append(m.Answer, &dns.CNAME{Hdr: header, Target: alias})
	case q.Qtype == dns.TypeTXT && len(values) > 0:
		for _, value := range values {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: header, Txt: []string{value}})
		}
	case q.Qtype == dns.TypeA && len(values) == 0:
		m.Answer = append(m.Answer, &dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)})
	default:
		m.Ns = []dns.RR{soa}
	}
}

// The variables that make a test's program an operator's program for DNS records.
const hookVariable = "ACMETEST_SERVER"

// HookSettings are the settings with which the test's own program sets records at a name server; see Hook.
func (s *NameServer) HookSettings() map[string]string {
	program, _ := os.Executable() // a wrong one fails the test
	return map[string]string{"program": program, "env." + hookVariable: s.Address, "check": s.Address}
}

// Hook does the work of an operator's program if this process is one, and ends it. TestMain calls it.
func Hook() {
	server := os.Getenv(hookVariable)
	if server == "" {
		return
	}
	if err := hook(server, os.Args[1:]); err != nil {
		fmt.Println("the hook failed:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

func hook(server string, args []string) error {
	if len(args) != 3 || os.Getenv("HOME") != "" || os.Getenv("PATH") == "" {
		return fmt.Errorf("the arguments are %q, and the environment %q", args, os.Environ())
	}
	m := new(dns.Msg).SetUpdate(Zone)
	rr := []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: args[1], Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 1},
		Txt: []string{args[2]}}}
	switch args[0] {
	case "present":
		m.Insert(rr)
	case "cleanup":
		m.Remove(rr)
	default:
		return errors.New(args[0])
	}
	m.SetTsig(Key, dns.HmacSHA256, 300, time.Now().Unix())
	client := &dns.Client{Net: "tcp", TsigSecret: map[string]string{Key: Secret}}
	answer, _, err := client.ExchangeContext(context.Background(), m, server)
	if err == nil && answer.Rcode != dns.RcodeSuccess {
		err = errors.New(dns.RcodeToString[answer.Rcode])
	}
	return err
}

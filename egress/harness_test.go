package egress

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"

	"golang.org/x/net/dns/dnsmessage"
)

// A nameServer answers questions about the names that a test gives it, each time with the next of its answers.
type nameServer struct {
	addr string

	mu    sync.Mutex
	names map[string][]string // each answer is addresses, with blanks between; the last one stays
	asked map[string]int      // for addresses of IPv4
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s := &nameServer{addr: c.LocalAddr().String(), names: map[string][]string{}, asked: map[string]int{}}
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := s.answer(b[:n]); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		}
	}()
	return s
}

func (s *nameServer) set(name string, answers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name] = answers
}

func (s *nameServer) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

func (s *nameServer) answer(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var m dnsmessage.Message
	if m.Unpack(b) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	answers, known := s.names[name]
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	if !known {
		out.RCode = dnsmessage.RCodeNameError
	} else {
		for _, a := range strings.Fields(answers[0]) {
			if r, ok := resource(q, netip.MustParseAddr(a)); ok {
				out.Answers = append(out.Answers, r)
			}
		}
		if q.Type == dnsmessage.TypeA {
			s.asked[name]++
		}
		if len(answers) > 1 && s.asked[name] > 0 && q.Type == dnsmessage.TypeA {
			s.names[name] = answers[1:]
		}
	}
	packed, err := out.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

func resource(q dnsmessage.Question, a netip.Addr) (r dnsmessage.Resource, ok bool) {
	r.Header = dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
	switch {
	case q.Type == dnsmessage.TypeA && a.Is4():
		r.Body = &dnsmessage.AResource{A: a.As4()}
	case q.Type == dnsmessage.TypeAAAA && a.Is6():
		r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
	default:
		return r, false
	}
	return r, true
}

// A site is a proxy with one gate, as a container sees it.
type site struct {
	t     *testing.T
	names *nameServer
	gate  *Gate
	addr  string // of the proxy
	stop  context.CancelFunc

	mu     sync.Mutex
	visits []Visit
	news   chan struct{}
}

// newSite makes one. 127.0.0.1 may be reached, and no other address of loopback.
func newSite(t *testing.T, cfg Config, n proto.Network) *site {
	t.Helper()
	s := &site{t: t, names: newNameServer(t), news: make(chan struct{}, 1000)}
	cfg.Most, cfg.Resolver = proto.NetworkOpen, s.names.addr
	cfg.Private = append(cfg.Private, netip.MustParsePrefix("127.0.0.1/32"))
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n, err = p.Grant(n); err != nil {
		t.Fatal(err)
	}
	s.gate = p.Gate(n, s.tell)
	s.serve()
	return s
}

func (s *site) tell(v Visit) {
	s.mu.Lock()
	s.visits = append(s.visits, v)
	s.mu.Unlock()
	s.news <- struct{}{}
}

// serve takes connections, as the daemon does those of a container.
func (s *site) serve() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop, s.addr = cancel, ln.Addr().String()
	var wg sync.WaitGroup
	s.t.Cleanup(func() { cancel(); ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			leave, err := s.gate.Enter(ctx)
			if err != nil {
				return
			}
			c, err := ln.Accept()
			if err != nil {
				leave()
				return
			}
			wg.Go(func() {
				defer leave()
				s.gate.Serve(ctx, c.(*net.TCPConn))
			})
		}
	})
}

// client is an HTTP client that uses the proxy.
func (s *site) client() *http.Client {
	u := &url.URL{Scheme: "http", Host: s.addr}
	tr := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return u, nil }}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// dial is a connection to the proxy, and a reader of it.
func (s *site) dial() (*net.TCPConn, *bufio.Reader) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c.(*net.TCPConn), bufio.NewReader(c)
}

// await waits until a visit of which fits has been told of.
func (s *site) await(what string, fits func(Visit) bool) Visit {
	s.t.Helper()
	late := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		for _, v := range s.visits {
			if fits(v) {
				s.mu.Unlock()
				return v
			}
		}
		all := s.visits
		s.mu.Unlock()
		select {
		case <-s.news:
		case <-late:
			s.t.Fatalf("nobody was told of %s, but of %+v", what, all)
		}
	}
}

// refusedFor waits for a refusal, or a passage that was cut, for that reason.
func (s *site) refusedFor(reason string) Visit {
	s.t.Helper()
	return s.await(reason, func(v Visit) bool { return v.Reason == reason && !v.Began })
}

// echo is a server that says what it was asked.
func echo(t *testing.T) (name, port string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Host", r.Host)
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		_ = r.Write(w)
	}))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return "web.example", port
}

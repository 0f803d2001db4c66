package proxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"berth/egress"
	"berth/proto"
	"berth/test/egresstest"
)

// A site is a proxy with one gate, as a container sees it.
type site struct {
	t     *testing.T
	names *egresstest.NameServer
	gate  *Gate
	addr  string // of the proxy
	stop  context.CancelFunc
	ask   egress.Ask

	mu     sync.Mutex
	visits []egress.Report
	news   chan struct{}
}

// newSite returns a site whose proxy allows 127.0.0.1 and no other loopback address.
func newSite(t *testing.T, cfg Config, n proto.Network, secrets ...egress.Secret) *site {
	t.Helper()
	s := &site{}
	s.open(t, cfg, n, secrets...)
	return s
}

func (s *site) open(t *testing.T, cfg Config, n proto.Network, secrets ...egress.Secret) {
	t.Helper()
	s.t, s.names, s.news = t, egresstest.NewNameServer(t), make(chan struct{}, 1000)
	cfg.Most, cfg.Resolver = proto.NetworkOpen, s.names.Addr
	cfg.Private = append(cfg.Private, netip.MustParsePrefix("127.0.0.1/32"))
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n, err = p.AllowList(n); err != nil {
		t.Fatal(err)
	}
	s.gate = p.Gate(n, secrets, s.ask, s.tell)
	s.serve()
}

func (s *site) tell(v egress.Report) {
	s.mu.Lock()
	s.visits = append(s.visits, v)
	s.mu.Unlock()
	s.news <- struct{}{}
}

// serve accepts connections, as the daemon does for a container.
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
				s.gate.Serve(ctx, struct{ egress.Conn }{
					c.(*net.TCPConn)}) // without WriteTo, like the connections of containers
			})
		}
	})
}

// client returns an HTTP client that uses the proxy.
func (s *site) client() *http.Client {
	u := &url.URL{Scheme: "http", Host: s.addr}
	tr := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return u, nil }}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

// dial returns a connection to the proxy, and a reader of it.
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

// await waits for a report that fits.
func (s *site) await(what string, fits func(egress.Report) bool) egress.Report {
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
			s.t.Fatalf("no report of %s, only %+v", what, all)
		}
	}
}

// refusedFor waits for the report of a refused or aborted request with that reason.
func (s *site) refusedFor(reason string) egress.Report {
	s.t.Helper()
	return s.await(reason, func(v egress.Report) bool { return v.Reason == reason && !v.Began })
}

// echo starts a server that answers with the request that it received.
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

package acme

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/daemon/acme/records"

	"github.com/mholt/acmez/v3/acme"
)

// A dnsSolver answers challenges by TXT records. It implements acmez.Solver and acmez.Waiter.
type dnsSolver struct{ setter *records.Setter }

// Present implements acmez.Solver.
func (s dnsSolver) Present(ctx context.Context, c acme.Challenge) error {
	return s.setter.Set(ctx, c.DNS01TXTRecordName(), c.DNS01KeyAuthorization())
}

// Wait implements acmez.Waiter.
func (s dnsSolver) Wait(ctx context.Context, c acme.Challenge) error {
	return s.setter.Await(ctx, c.DNS01TXTRecordName(), c.DNS01KeyAuthorization())
}

// cleanLimit is how long the removal of a record may delay the end of the daemon. A test shortens it.
var cleanLimit = 10 * time.Second

// CleanUp implements acmez.Solver. It removes the record also when the daemon ends meanwhile, which then waits no
// longer than cleanLimit.
func (s dnsSolver) CleanUp(ctx context.Context, c acme.Challenge) error {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		// A try whose time is over is not the end of the daemon.
		if errors.Is(ctx.Err(), context.Canceled) {
			time.AfterFunc(cleanLimit, cancel)
		}
	})
	defer stop()
	return s.setter.Unset(lasting, c.DNS01TXTRecordName(), c.DNS01KeyAuthorization())
}

// answers answers challenges over HTTP, on a port of its own. It implements acmez.Solver.
type answers struct {
	server *http.Server
	domain string
	ended  chan struct{}

	mu  sync.Mutex
	has map[string]string // by path
}

// Bounds of the port for challenges, which anybody can reach.
const (
	challengeTime    = 10 * time.Second
	challengeHeaders = 8 << 10
)

// answer listens at an address. The port is open from start to end, so a port that is taken is told at the start.
func answer(address, domain string) (*answers, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for the authority: %w; stop what has the port, or let the authority look at "+
			"DNS", err)
	}
	a := &answers{domain: domain, ended: make(chan struct{}), has: map[string]string{}}
	a.server = &http.Server{Handler: a, ReadTimeout: challengeTime, WriteTimeout: challengeTime,
		MaxHeaderBytes: challengeHeaders}
	a.server.SetKeepAlivesEnabled(false)
	go func() {
		defer close(a.ended)
		_ = a.server.Serve(l) // ends with close
	}()
	return a, nil
}

// ServeHTTP answers the authority. It does not redirect other clients to HTTPS: a client that sends its key here has
// sent it in clear text already, and must learn of it.
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	a.mu.Lock()
	text, ok := a.has[r.URL.Path]
	a.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain")
	if !ok || r.Method != http.MethodGet || !strings.EqualFold(host, a.domain) {
		w.WriteHeader(http.StatusNotFound)
		text = "This port answers ACME challenges alone. Use https://" + a.domain + ".\n"
	}
	_, _ = w.Write([]byte(text)) // an authority that is gone asks again
}

// Present implements acmez.Solver.
func (a *answers) Present(_ context.Context, c acme.Challenge) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.has[c.HTTP01ResourcePath()] = c.KeyAuthorization
	return nil
}

// CleanUp implements acmez.Solver.
func (a *answers) CleanUp(_ context.Context, c acme.Challenge) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.has, c.HTTP01ResourcePath())
	return nil
}

func (a *answers) close() error {
	err := a.server.Close()
	<-a.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"berth/proto"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// Limits of every connection.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// finalGrace is how long a request that is cut off at shutdown has to send its error.
const finalGrace = 2 * time.Second

// errShutdown ends the requests that still run after Config.Grace.
var errShutdown = proto.Errorf(proto.Unavailable, "", "", "The daemon is shutting down, and the request was cut "+
	"off; send it again when the daemon is back.")

// A Config is what a Server serves.
type Config struct {
	Auth Authenticator
	// knows the browsers that are logged in to the console; nil: there are none
	Logins Logins
	Edges  []Edge
	Raws   []Raw // applications; asked before the edges
	// of web pages that may read answers; see cors.go
	Origins Origins
	Audit   Auditor // nil: nothing is audited
	// replaces the secrets of a container in text; nil: nothing is replaced
	Hide func(container, text string) string
	// returns the ID of an owner's container with that name, or "". Paths may have a name in place of an ID. nil: they
	// have IDs only
	ContainerID func(owner, name string) string
	// returns the WWW-Authenticate header of an error to a request for a path, or "" for the usual one; nil: the usual
	Challenge    func(path string, err *proto.Error) string
	Metrics      prometheus.Registerer // nil: none
	Log          *slog.Logger          // nil: no log
	MaxBodyBytes int64                 // for routes without a limit; 0 is 1 MiB
	Stall        time.Duration         // for one read of a body or one write of an answer; 0 is 1 minute
	Grace        time.Duration         // for running requests at shutdown; 0 is 10 s
}

// A Server serves edges.
type Server struct {
	cfg      Config
	tables   []*table // one for each host pattern; the first one is for any host
	meter    *meter
	refusals refusalLimiter
	draining chan struct{}
	drain    func() // closes draining once
	active   sync.WaitGroup
}

// New checks the route tables. It fails if two routes conflict, or if a route is wrong about its container.
func New(cfg Config) (*Server, error) {
	cfg.MaxBodyBytes = cmp.Or(cfg.MaxBodyBytes, 1<<20)
	cfg.Stall = cmp.Or(cfg.Stall, time.Minute)
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, meter: newMeter(cfg.Metrics), draining: make(chan struct{})}
	s.table("")
	s.refusals.limit = rate.NewLimiter(refusedPerSecond, refusedAtOnce)
	s.drain = sync.OnceFunc(func() { close(s.draining) })
	for i := range s.cfg.Edges {
		if err := s.mount(&s.cfg.Edges[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Serve answers on l until ctx ends. Then it accepts no new requests, ends streams (see Draining), waits up to
// Config.Grace for the others, and cancels the rest, whose clients get an error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context { return base },
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving HTTP: %w", err)
	case <-ctx.Done():
	}
	return s.shutdown(srv, cancel)
}

// shutdown ends all requests and returns when every handler has returned.
func (s *Server) shutdown(srv *http.Server, cancel context.CancelCauseFunc) error {
	s.drain()
	grace, stop := context.WithTimeout(context.Background(), s.cfg.Grace)
	defer stop()
	err := srv.Shutdown(grace)
	idle := make(chan struct{})
	go func() { s.active.Wait(); close(idle) }()
	select {
	case <-idle: // Shutdown does not wait for hijacked connections
	case <-grace.Done():
	}
	cancel(errShutdown)
	moment, over := context.WithTimeout(context.Background(), finalGrace)
	defer over()
	_ = srv.Shutdown(moment) // requests that do not end by then are cut off
	err = errors.Join(err, srv.Close())
	<-idle
	if errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Log.Warn("shutdown: some requests had to be cut off", "grace", s.cfg.Grace)
		return nil
	}
	return err
}

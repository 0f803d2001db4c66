package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
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
	Auth  Authenticator
	Edges []Edge
	Audit Auditor // nil: nothing is audited
	// replaces the secrets of a container in text; nil: nothing is replaced
	Hide         func(container, text string) string
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

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.active.Add(1)
	defer s.active.Done()
	x := newExchange(w, r.WithContext(context.WithValue(r.Context(), drainingKey, (<-chan struct{})(s.draining))),
		s.cfg.Stall)
	defer func() { x.releaseCaller() }()
	x.writeAudit = func() { s.finishAudit(x) }
	s.recoverPanic(x)
	s.finishAudit(x)
	x.flushAnswer()
	s.logRequest(x)
	x.drainBody()
	if x.cut && !x.hijacked {
		panic(http.ErrAbortHandler) // a client must not take half an answer for a whole one
	}
}

// recoverPanic dispatches a request and turns a panic into an internal error.
func (s *Server) recoverPanic(x *exchange) {
	defer func() {
		if v := recover(); v != nil {
			s.cfg.Log.Error("a handler panicked", "request_id", x.id, "panic", fmt.Sprint(v), "stack",
				string(debug.Stack()))
			s.endRequest(x, fmt.Errorf("panic: %v", v))
		}
	}()
	s.dispatch(x)
}

// serveRoute authenticates and checks a request, and runs the handler of its route.
func (s *Server) serveRoute(x *exchange, e *Edge, route Route) (err error) {
	var c Caller
	if !route.Public {
		if c, err = s.authenticate(x.r); err != nil {
			s.auditRefusedKey(x, err)
			return err
		}
		s.bindCaller(x, c)
	}
	if err := s.startAudit(x, route, c); err != nil {
		return err
	}
	if err := s.limitBody(x, route); err != nil {
		return err
	}
	if err := checkMedia(x.r, route.Media); err != nil {
		return err
	}
	if e.Check != nil {
		if err := e.Check(x.r); err != nil {
			return err
		}
	}
	return route.Handle(x, x.r, c)
}

// endRequest writes an error if the answer has not started, and marks the connection to be cut otherwise.
func (s *Server) endRequest(x *exchange, err error) {
	if err == nil {
		return
	}
	if ended := keyEnded(x.r.Context()); ended != nil {
		x.over, err = true, ended
	} else if code := proto.CodeOf(err); cutOff(x.r.Context()) && (code == proto.Internal || code == proto.Canceled) {
		err = errShutdown // whatever the handler returned because its context ended
	} else if gone := x.lost || x.r.Context().Err() != nil; gone && code == proto.Internal {
		err = proto.Errorf(proto.Canceled, "", "", "the client went away: %v", err)
	}
	x.err = err
	if x.status == 0 && !x.hijacked {
		s.fail(x, err)
		return
	}
	x.cut = true
}

// cutOff reports whether the shutdown of the server ended a request, not its client.
func cutOff(ctx context.Context) bool {
	return ctx.Err() != nil && context.Cause(ctx) == error(errShutdown)
}

// loggable returns the part of an error that may be logged. Messages about invalid requests repeat the words of the
// client, which may be misplaced secrets: of those only the code is logged.
func loggable(err error) string {
	if code := proto.CodeOf(err); code == proto.InvalidArgument {
		return string(code)
	}
	return err.Error()
}

// logRequest writes the log line and the metrics of a request.
func (s *Server) logRequest(x *exchange) {
	took := time.Since(x.start)
	s.meter.observe(x, took)
	attrs := []slog.Attr{
		slog.String("method", x.r.Method), slog.String("route", x.route()), slog.Int("status", x.status),
		slog.Duration("took", took), slog.Int64("bytes", x.bytes),
		slog.String("owner", x.owner), slog.String("request_id", x.id),
	}
	level := slog.LevelInfo
	if x.err != nil {
		attrs = append(attrs, slog.String("err", s.hide(x, loggable(x.err))))
		if proto.CodeOf(x.err) == proto.Internal {
			level = slog.LevelError
		}
	}
	s.cfg.Log.LogAttrs(x.r.Context(), level, "request", attrs...)
}

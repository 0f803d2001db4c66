package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"berth/proto"
)

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.active.Add(1)
	defer s.active.Done()
	r = s.takePathKey(r)
	x := newExchange(w, r.WithContext(context.WithValue(r.Context(), drainingKey, (<-chan struct{})(s.draining))),
		s.cfg.Stall)
	defer func() { x.releaseCaller() }()
	x.writeAudit = func() { s.finishAudit(x) }
	s.recoverPanic(x)
	s.finishAudit(x)
	x.flushAnswer()
	s.logRequest(x)
	x.endSpan()
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

// dispatch sends a request to its route. The mux would redirect paths that are not clean, so it never sees them.
func (s *Server) dispatch(x *exchange) {
	x.table = s.tableFor(x.r.Host)
	if q, ok := s.raw(x.r); ok {
		s.endRequest(x, s.serveRaw(x, q))
		return
	}
	if !isClean(x.r) {
		s.endRequest(x, noRoute(x, nil))
		return
	}
	if s.shareAnswer(x) {
		return
	}
	x.table.mux.ServeHTTP(x, x.r)
}

// isClean is false for "*", too, which is no path.
func isClean(r *http.Request) bool {
	p := r.URL.EscapedPath()
	clean := path.Clean(p)
	return r.RequestURI != "*" && (p == clean || clean != "/" && p == clean+"/")
}

// tableFor returns the table with the most specific host pattern that matches the Host header of a request.
func (s *Server) tableFor(host string) (best *table) {
	if len(s.tables) == 1 {
		return s.tables[0]
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	_, parent, _ := strings.Cut(host, ".")
	for _, t := range s.tables {
		switch t.host {
		case host:
			return t
		case "*." + parent:
			best = t
		case "":
			if best == nil {
				best = t
			}
		}
	}
	return best
}

// serveOn returns the handler of a route for the mux of its table.
func (s *Server) serveOn(t *table, e *Edge, route Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		if t.hides(route.Pattern, r.URL.Path) {
			r.Pattern = ""
			s.endRequest(x, t.refuse(x))
			return
		}
		x.r, x.edge, x.container, x.probe = r, e, route.containerInPath(r), route.Probe
		s.endRequest(x, s.serveRoute(x, e, route))
	}
}

// admit finds the caller of a request, and binds the request to the caller's key. A refused key is audited.
func (s *Server) admit(x *exchange) (Caller, error) {
	c, life, err := s.authenticate(x.r, x.edge)
	if err != nil {
		s.auditRefusedKey(x, err)
		return c, err
	}
	s.bindCaller(x, c, life)
	return c, nil
}

// serveRoute authenticates and checks a request, and runs the handler of its route.
func (s *Server) serveRoute(x *exchange, e *Edge, route Route) (err error) {
	var c Caller
	if !route.Public && (route.Keyless == nil || !route.Keyless(x.r)) {
		if c, err = s.admit(x); err != nil {
			return err
		}
	}
	s.resolveContainer(x, route, c)
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
	if !route.takesBody() {
		if err := x.body.skip(x.r.ContentLength); err != nil {
			return err
		}
	}
	return route.Handle(x, x.r, c)
}

// resolveContainer replaces the name of a container in the path by its ID, so that handlers, the audit log and errors
// have the ID. A name that no container has stays: the handler refuses it.
func (s *Server) resolveContainer(x *exchange, route Route, c Caller) {
	if route.Where != InPath || x.container != "" || s.cfg.ContainerID == nil {
		return
	}
	if id := s.cfg.ContainerID(c.Owner, x.r.PathValue("id")); id != "" {
		x.r.SetPathValue("id", id)
		x.container = id
	}
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
		slog.Float64("took_seconds", took.Seconds()), slog.Int64("bytes", x.bytes),
		slog.String("owner", x.owner), slog.String("request_id", x.id),
	}
	level := slog.LevelInfo
	if x.probe && x.status < http.StatusBadRequest {
		level = slog.LevelDebug
	}
	if x.err != nil {
		attrs = append(attrs, slog.String("err", s.hide(x, loggable(x.err))))
		if proto.CodeOf(x.err) == proto.Internal {
			level = slog.LevelError
		}
	}
	s.cfg.Log.LogAttrs(x.r.Context(), level, "request", attrs...)
}

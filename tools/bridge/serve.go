package bridge

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/egress"
	"berth/session"
	"berth/tools/bridge/codeapi"
)

// Times of the server that code in containers finds. Slower code is disconnected.
const (
	headTime  = 10 * time.Second // to send a request's head
	bodyTime  = 30 * time.Second // to send a request's body
	idleTime  = time.Minute      // between two requests of one connection
	writeTime = time.Minute      // to take one line
	listTime  = 20 * time.Second // to ask a server for its tools
	maxHead   = 8 << 10          // bytes of a request's head
)

// A guestListener accepts the connections that guests hand over.
type guestListener struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener.
func (l *guestListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *guestListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

// Addr implements net.Listener.
func (l *guestListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3129} }

// A guestConn is a connection from a container. It signals when it is closed.
type guestConn struct {
	egress.Conn
	dispatcher *dispatcher
	once       sync.Once
	over       chan struct{}
}

// Close implements net.Conn.
func (c *guestConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.over) })
	return err
}

// service is the loopback of one generation of a container.
type service struct{ dispatcher *dispatcher }

// Enter waits for a place among the container's connections.
func (s *service) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.dispatcher.places <- struct{}{}:
		return func() { <-s.dispatcher.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Serve answers one connection and closes it.
func (s *service) Serve(ctx context.Context, conn egress.Conn) {
	c := &guestConn{Conn: conn, dispatcher: s.dispatcher, over: make(chan struct{})}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	b := s.dispatcher.b
	select {
	case b.guests.conns <- c:
		<-c.over
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
}

type dispatcherKey struct{}

// startServer starts to answer connections.
func (b *Bridge) startServer() {
	b.guests = guestListener{conns: make(chan net.Conn), over: make(chan struct{})}
	b.server = &http.Server{
		Handler: http.HandlerFunc(b.handle), ReadHeaderTimeout: headTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHead, DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(b.cfg.Log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, dispatcherKey{}, c.(*guestConn).dispatcher)
		},
	}
	b.wg.Go(func() { _ = b.server.Serve(&b.guests) })
}

// handle answers one request. There are two paths, in one spelling each; the caller needs the token of a running
// command.
func (b *Bridge) handle(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, kind, text string) { codeapi.Refuse(w, status, codeapi.Fail(kind, "%s", text)) }
	if !b.enter() {
		refuse(http.StatusServiceUnavailable, codeapi.RuntimeError, "the daemon is shutting down")
		return
	}
	defer b.wg.Done()
	const routes = "the only requests are GET /v1/tools and POST /v1/calls"
	d := r.Context().Value(dispatcherKey{}).(*dispatcher)
	method, ok := map[string]string{"/v1/tools": http.MethodGet, "/v1/calls": http.MethodPost}[r.RequestURI]
	switch {
	case !ok:
		refuse(http.StatusNotFound, codeapi.ValueError, routes)
		return
	case r.Method != method:
		refuse(http.StatusMethodNotAllowed, codeapi.ValueError, routes)
		return
	}
	var e *session.Exec
	if given := r.Header.Values("Authorization"); len(given) == 1 {
		if token, ok := strings.CutPrefix(given[0], "Bearer "); ok {
			e = d.s.ExecByToken(token)
		}
	}
	if e == nil {
		refuse(http.StatusUnauthorized, codeapi.PermissionError, "tools are for running commands: the Authorization "+
			"header must carry the BERTH_TOOLS_TOKEN of one")
		return
	}
	if err := d.load(); err != nil {
		b.cfg.Log.Error("reading the records of a container's tools", "container", d.s.ID(), "error", err)
		refuse(http.StatusServiceUnavailable, codeapi.RuntimeError, "tools cannot be called now")
		return
	}
	if method == http.MethodGet {
		d.serveList(w, r)
		return
	}
	d.serveCalls(w, r, e)
}

func (d *dispatcher) serveList(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	if d.rate.Wait(ctx) != nil {
		codeapi.Refuse(w, http.StatusTooManyRequests, codeapi.Fail(codeapi.RuntimeError, "code in this container asks "+
			"more often than it may; ask again later"))
		return
	}
	tools, failure := d.list(ctx)
	if failure != nil {
		codeapi.Refuse(w, http.StatusBadGateway, failure)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	_ = codeapi.WriteList(w, tools)
}

func (d *dispatcher) serveCalls(w http.ResponseWriter, r *http.Request, e *session.Exec) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	asked, err := codeapi.ReadCalls(r.Body, d)
	if err != nil {
		status, failure := codeapi.Refusal(err)
		codeapi.Refuse(w, status, failure)
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	if d.rate.WaitN(r.Context(), len(asked)) != nil {
		for _, a := range asked {
			d.Release(int64(len(a.Input)))
		}
		return
	}
	ended := make(chan *call, 2*len(asked))
	d.streamEnds(w, r, d.startCalls(r.Context(), e, asked, ended), ended)
}

// streamEnds writes a line for each call as it ends. When the code or the daemon goes away, the answer breaks off and
// the code asks again.
func (d *dispatcher) streamEnds(w http.ResponseWriter, r *http.Request, calls []*call, ended chan *call) {
	waiting := map[*call]bool{} // a request may name a call twice
	for _, c := range calls {
		waiting[c] = true
	}
	defer func() {
		for c := range waiting {
			d.leave(c, ended, false)
		}
	}()
	control := http.NewResponseController(w)
	// the deadline of the connection's last answer may be over
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	_ = control.Flush()
	for len(waiting) > 0 {
		select {
		case c := <-ended:
			_ = control.SetWriteDeadline(time.Now().Add(writeTime))
			if !waiting[c] {
				continue
			}
			d.mu.Lock()
			out := c.end
			d.mu.Unlock()
			if codeapi.WriteLine(w, c.key.client, out.result, out.failure) != nil || control.Flush() != nil {
				return
			}
			delete(waiting, c)
			d.leave(c, ended, true) // at once: it may be large
		case <-r.Context().Done():
			return
		case <-d.b.ctx.Done():
			panic(http.ErrAbortHandler)
		}
	}
}

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/egress"
	"berth/session"
)

// Times of the server that code in containers finds. Slower code is disconnected.
const (
	headTime  = 10 * time.Second // to send a request's head
	bodyTime  = 30 * time.Second // to send a request's body
	idleTime  = time.Minute      // between two requests of one connection
	writeTime = time.Minute      // to take one line
	maxHead   = 8 << 10          // bytes of a request's head
)

// A guestListener accepts the connections that guests hand over.
type guestListener struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener.
func (d *guestListener) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *guestListener) Close() error {
	d.once.Do(func() { close(d.over) })
	return nil
}

// Addr implements net.Listener.
func (d *guestListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3129} }

// A guestConn is a connection from a container. It signals when it is closed.
type guestConn struct {
	egress.Conn
	desk *dispatcher
	once sync.Once
	over chan struct{}
}

// Close implements net.Conn.
func (k *guestConn) Close() error {
	err := k.Conn.Close()
	k.once.Do(func() { close(k.over) })
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
func (s *service) Serve(ctx context.Context, c egress.Conn) {
	k := &guestConn{Conn: c, desk: s.dispatcher, over: make(chan struct{})}
	defer k.Close()
	defer context.AfterFunc(ctx, func() { _ = k.Close() })()
	b := s.dispatcher.b
	select {
	case b.door.conns <- k:
		<-k.over
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
}

type deskKey struct{}

// serve starts to answer connections.
func (b *Bridge) serve() {
	b.door = guestListener{conns: make(chan net.Conn), over: make(chan struct{})}
	b.server = &http.Server{
		Handler: http.HandlerFunc(b.handle), ReadHeaderTimeout: headTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHead, DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(b.cfg.Log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, deskKey{}, c.(*guestConn).desk)
		},
	}
	b.wg.Go(func() { _ = b.server.Serve(&b.door) })
}

// handle answers one request. There are two paths, in one spelling each; the caller needs the token of a running
// command.
func (b *Bridge) handle(w http.ResponseWriter, r *http.Request) {
	if !b.enter() {
		refuse(w, http.StatusServiceUnavailable, fail(RuntimeError, "the daemon is shutting down"))
		return
	}
	defer b.wg.Done()
	d := r.Context().Value(deskKey{}).(*dispatcher)
	switch {
	case r.RequestURI != "/v1/tools" && r.RequestURI != "/v1/calls":
		refuse(w, http.StatusNotFound, fail(ValueError, "there is GET /v1/tools and POST /v1/calls, and nothing else"))
		return
	case r.RequestURI == "/v1/tools" && r.Method != http.MethodGet, r.RequestURI == "/v1/calls" &&
		r.Method != http.MethodPost:
		refuse(w, http.StatusMethodNotAllowed, fail(ValueError, "there is GET /v1/tools and POST /v1/calls, and "+
			"nothing else"))
		return
	}
	e := d.caller(r)
	if e == nil {
		refuse(w, http.StatusUnauthorized, fail(PermissionError, "tools are for commands that run: the "+
			"Authorization header must have the BERTH_TOOLS_TOKEN of one"))
		return
	}
	if err := d.load(); err != nil {
		b.cfg.Log.Error("reading what is known of a container's tools", "container", d.s.ID(), "error", err)
		refuse(w, http.StatusServiceUnavailable, fail(RuntimeError, "tools cannot be called now"))
		return
	}
	if r.Method == http.MethodGet {
		d.serveList(w, r)
		return
	}
	d.serveCalls(w, r, e)
}

// caller returns the command that sent the request.
func (d *dispatcher) caller(r *http.Request) *session.Exec {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return nil
	}
	token, ok := strings.CutPrefix(given[0], "Bearer ")
	if !ok {
		return nil
	}
	return d.s.ExecByToken(token)
}

// refuse answers a request that is refused. The rest of its body is not read.
func refuse(w http.ResponseWriter, status int, f *Failure) {
	body, _ := json.Marshal(map[string]*Failure{"error": f})
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Connection", "close")
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// listTime bounds a request for a server's tools.
const listTime = 20 * time.Second

func (d *dispatcher) serveList(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	if d.rate.Wait(ctx) != nil {
		refuse(w, http.StatusTooManyRequests, fail(RuntimeError, "code in this container asks more often than it "+
			"may; ask again later"))
		return
	}
	tools, failure := d.list(ctx)
	if failure != nil {
		refuse(w, http.StatusBadGateway, failure)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	_ = json.NewEncoder(w).Encode(map[string][]Listed{"tools": tools})
}

func (d *dispatcher) serveCalls(w http.ResponseWriter, r *http.Request, e *session.Exec) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	asks, err := d.read(r.Body)
	if err != nil {
		status, failure := badBatch(err)
		refuse(w, status, failure)
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	if d.rate.WaitN(r.Context(), len(asks)) != nil {
		for _, a := range asks {
			d.release(int64(len(a.Input)))
		}
		return
	}
	ended := make(chan *call, 2*len(asks))
	d.stream(w, r, d.begin(r.Context(), e, asks, ended), ended)
}

// stream writes a line for each call as it ends. When the code or the daemon goes away, the answer breaks off and the
// code asks again.
func (d *dispatcher) stream(w http.ResponseWriter, r *http.Request, calls []*call, ended chan *call) {
	told := map[*call]bool{}
	defer func() {
		for _, c := range calls {
			if !told[c] {
				d.leave(c, ended, false)
			}
		}
	}()
	control := http.NewResponseController(w)
	// the deadline of the connection's last answer may be over
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	_ = control.Flush()
	for all := distinct(calls); len(told) < len(all); {
		select {
		case c := <-ended:
			_ = control.SetWriteDeadline(time.Now().Add(writeTime))
			if told[c] {
				continue
			}
			if d.writeLine(w, c) != nil || control.Flush() != nil {
				return
			}
			told[c] = true
			d.leave(c, ended, true) // at once: it may be large
		case <-r.Context().Done():
			return
		case <-d.b.ctx.Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// distinct returns each call of a request once: a request may name one twice.
func distinct(calls []*call) map[*call]bool {
	set := map[*call]bool{}
	for _, c := range calls {
		set[c] = true
	}
	return set
}

// A line is what the code gets for a call.
type line struct {
	ID     string          `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
}

// writeLine writes a call's line. The result is passed on unchanged, in one line.
func (d *dispatcher) writeLine(w io.Writer, c *call) error {
	d.mu.Lock()
	out := c.end
	d.mu.Unlock()
	text, err := json.Marshal(line{c.key.client, out.result, out.failure}) // Marshal compacts raw values
	if err != nil {
		text, _ = json.Marshal(line{c.key.client, nil,
			fail(RuntimeError, "the tool gave back something that is not JSON")})
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// batchError is a failure in the form of an error.
type batchError struct{ *Failure }

func (e batchError) Error() string { return e.Message }

func (f *Failure) error() error { return batchError{f} }

// badBatch returns the answer for a request that cannot be read.
func badBatch(err error) (int, *Failure) {
	var own batchError
	var slow net.Error
	switch {
	case errors.As(err, &own):
		return http.StatusBadRequest, own.Failure
	case errors.Is(err, errLargeInput):
		return http.StatusRequestEntityTooLarge, fail(ValueError, "an input has at most %d bytes; put what is "+
			"larger into a file", maxInput)
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge,
			fail(ValueError, "a request has at most %d bytes; make its calls in several", maxRequest)
	case errors.Is(err, errNoRoom):
		return http.StatusTooManyRequests, fail(RuntimeError, "the inputs of calls under way have as many bytes as "+
			"they may; await some of them first")
	case errors.As(err, &slow) && slow.Timeout():
		return http.StatusRequestTimeout, fail(ValueError, "the request took too long to arrive")
	}
	return http.StatusBadRequest, fail(ValueError, `a request is {"calls": [{"id", "tool", "input"}]}`)
}

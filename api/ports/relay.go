package ports

import (
	"context"
	"errors"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"berth/api"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
)

// Sizes of the proxy, in bytes.
const (
	bufferBytes    = 128 << 10 // of one direction of an answer
	socketBytes    = 64 << 10  // one read or write of an application's connection
	maxHeaderBytes = 1 << 20   // of an answer
)

// newTransport returns the transport to applications. Each request has a connection of its own: an idle one would keep
// the container awake, and connecting takes less than a tenth of a millisecond.
func newTransport(dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext: dial, DisableKeepAlives: true, DisableCompression: true, ExpectContinueTimeout: time.Second,
		ReadBufferSize: socketBytes, WriteBufferSize: socketBytes, MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// Get and Put make Edge the buffer pool of its proxies.
func (e *Edge) Get() []byte { return *e.buffers.Get().(*[]byte) }

// Put gives a buffer back.
func (e *Edge) Put(b []byte) { e.buffers.Put(&b) }

// A relay is one request on its way to an application.
type relay struct {
	e    *Edge
	t    target
	s    *session.Session
	port uint16
	in   *http.Request // as the client sent it
	path string        // for the application
}

// run passes the request on and returns when the answer has ended.
func (p *relay) run(w http.ResponseWriter) (err error) {
	ctx, cancel := context.WithCancel(p.in.Context())
	defer cancel()
	defer func() {
		if v := recover(); v == http.ErrAbortHandler {
			err = errCutOff
		} else if v != nil {
			panic(v)
		}
	}()
	proxy := httputil.ReverseProxy{
		Transport: p.e.transport, FlushInterval: -1, BufferPool: p.e, Rewrite: p.rewrite,
		ErrorLog: p.e.errors,
		ModifyResponse: func(res *http.Response) error {
			if isStream(res) {
				go func() {
					select {
					case <-api.Draining(ctx):
						cancel() // it might never end, and would delay the shutdown
					case <-ctx.Done():
					}
				}()
			}
			p.cleanAnswer(res.Header)
			if res.Header.Get("Access-Control-Allow-Origin") != "" { // in place of an edge's own
				w.Header().Del("Access-Control-Allow-Origin")
				w.Header().Del("Access-Control-Expose-Headers")
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, failed error) { err = p.explain(failed) },
	}
	proxy.ServeHTTP(w, p.in.WithContext(ctx))
	if cause := context.Cause(p.in.Context()); err == nil && cause != nil && cause != context.Canceled {
		return errCutOff // an answer that ends with its connection looks whole to the proxy
	}
	return err
}

var errCutOff = proto.Errorf(proto.Canceled, "", "", "the answer of the application broke off")

// isStream reports whether an answer may go on for ever.
func isStream(res *http.Response) bool {
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return res.StatusCode == http.StatusSwitchingProtocols || err == nil && media == "text/event-stream"
}

// rewrite makes the application's request of the client's.
func (p *relay) rewrite(r *httputil.ProxyRequest) {
	u := r.Out.URL
	u.Scheme, u.Host = "http", hostOf(p.s, p.port)
	u.Path, u.RawPath = p.path, p.t.path
	u.RawQuery = p.t.query // unchanged, although the proxy does not understand all of it
	r.Out.Host = p.in.Host
	p.cleanRequest(r.Out.Header)
	r.SetXForwarded()
	if p.t.prefix != "" {
		r.Out.Header.Set("X-Forwarded-Prefix", p.t.prefix)
	} else if p.e.cfg.Domain.Scheme != "" {
		r.Out.Header.Set("X-Forwarded-Proto", p.e.cfg.Domain.Scheme)
	}
}

// explain returns the client's error for a request that reached no application, or got no answer.
func (p *relay) explain(err error) error {
	var known *proto.Error
	switch {
	case p.in.Context().Err() != nil:
		return err
	case errors.As(err, &known) && known.Code == proto.NotFound && known.Item == strconv.Itoa(int(p.port)):
		return closedPort{badGateway(known.Item, "Nothing listens on port %d of the container; start the program, and "+
			"have it listen on 127.0.0.1 or 0.0.0.0. `berth ports` lists what listens.", p.port)}
	case errors.As(err, &known) && known.Code != proto.Internal:
		return known
	}
	p.e.cfg.Log.Debug("an application gave no answer", "container", p.s.ID(), "port", p.port, "error", err)
	return badGateway(strconv.Itoa(int(p.port)), "The program that listens on port %d of the container gave no valid "+
		"HTTP answer; it may have ended, or speak another protocol. `berth forward` reaches programs of any protocol.",
		p.port)
}

// A closedPort is the error for a port where nothing listens. It is inbound.ErrClosed.
type closedPort struct{ error }

// Unwrap returns the error for the client.
func (c closedPort) Unwrap() error { return c.error }

// Is makes it inbound.ErrClosed.
func (c closedPort) Is(target error) bool { return target == inbound.ErrClosed }

// badGateway returns an error with the status 502.
func badGateway(item, format string, args ...any) error {
	return api.WithStatus(http.StatusBadGateway, proto.Errorf(proto.Unavailable, "", item, format, args...))
}

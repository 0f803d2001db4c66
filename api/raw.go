package api

import (
	"net/http"
	"time"

	"berth/proto"
)

// rawStall is the longest pause of a request body that an application reads. Such a body may be a conversation.
const rawStall = time.Hour

// A Raw finds the requests that belong to an application behind this server: any method and path, and bodies of any
// kind and length. It reports false for a request that the routes serve. The path of the request need not be clean.
type Raw func(*http.Request) (RawRequest, bool)

// A RawRequest is a request to an application. Authentication, the log and the metrics are those of routes.
// Its bodies are neither checked nor buffered, and pages of all origins are the application's affair.
type RawRequest struct {
	Route     string // name of the route in the log and the metrics
	Container string // ID or name of the container that it is for
	Handle    Handler

	Keyless bool     // needs no API key: the handler decides who may send it, and its Caller is zero
	Dialect *Dialect // of errors; nil: Plain
}

// raw returns what serves a request to an application.
func (s *Server) raw(r *http.Request) (RawRequest, bool) {
	for _, find := range s.cfg.Raws {
		if q, ok := find(r); ok {
			return q, true
		}
	}
	return RawRequest{}, false
}

// serveRaw authenticates a request to an application and runs its handler.
func (s *Server) serveRaw(x *exchange, q RawRequest) (err error) {
	x.r.Pattern, x.edge = q.Route, &Edge{Dialect: Plain}
	if q.Dialect != nil {
		x.edge.Dialect = *q.Dialect
	}
	var c Caller
	if !q.Keyless {
		if c, err = s.admit(x); err != nil {
			return err
		}
	}
	if s.cfg.Audit != nil {
		if err := s.cfg.Audit.Ready(); err != nil {
			return err
		}
	}
	if x.container = q.Container; !proto.ValidID(proto.ContainerPrefix, x.container) && s.cfg.ContainerID != nil {
		x.container = s.cfg.ContainerID(c.Owner, q.Container)
	}
	rc := http.NewResponseController(x.ResponseWriter)
	_ = rc.EnableFullDuplex() // an application may answer while it reads; HTTP/2 always allows it
	x.body = &body{ReadCloser: x.r.Body, rc: rc, stall: rawStall, limit: -1, chunked: len(x.r.TransferEncoding) > 0,
		ctx: x.r.Context()}
	if x.r.Body != http.NoBody { // once wrapped, an empty body would be sent with an unknown length
		x.r.Body = x.body
	}
	return q.Handle(x, x.r, c)
}

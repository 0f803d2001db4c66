package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"berth/proto"
	"berth/proto/span"
)

// endSpan ends the span of the request. Its name is the method and the pattern of the route: the path itself may name
// files of users.
func (x *exchange) endSpan() {
	if x.span.Recorded() {
		x.describeSpan()
	}
	x.span.End(nil)
}

func (x *exchange) describeSpan() {
	method := x.r.Method
	if !slices.Contains(methods, method) && method != http.MethodOptions {
		method = "_OTHER" // as the conventions demand: clients must not be able to make any number of names
	}
	x.span.Rename(method)
	if _, route, ok := strings.Cut(x.r.Pattern, " "); ok {
		x.span.Rename(method + " " + route)
		x.span.String(span.HTTPRoute, route)
	}
	scheme := "http"
	if x.r.TLS != nil {
		scheme = "https"
	}
	x.span.String(span.HTTPMethod, method)
	x.span.String(span.URLScheme, scheme)
	x.span.Int(span.HTTPStatus, int64(x.status))
	x.span.String(span.RequestID, x.id)
	x.span.String(span.ContainerID, x.container)
	for _, name := range Wildcards(x.r.Pattern) {
		if id := x.r.PathValue(name); proto.ValidID(proto.ExecPrefix, id) {
			x.span.String(span.ExecID, id)
		}
	}
	switch {
	case x.cut: // the answer broke off, whatever its status says
		x.span.Fail(string(proto.CodeOf(x.err)))
	case x.status >= http.StatusInternalServerError && x.err != nil:
		x.span.Fail(string(proto.CodeOf(x.err)))
	case x.status >= http.StatusInternalServerError:
		x.span.Fail(strconv.Itoa(x.status))
	}
}

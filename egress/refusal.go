package egress

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"berth/proto"
)

// A Refusal says why a request is not forwarded.
type Refusal struct {
	Code   proto.Code // the error code, as everywhere
	Reason string     // one word, for metrics
	Text   string     // a sentence for the client: what is wrong, and the way out
}

func (r *Refusal) Error() string { return r.Text }

// Refuse returns a refusal. reason is one word, for metrics.
func Refuse(code proto.Code, reason, format string, args ...any) *Refusal {
	return &Refusal{code, reason, fmt.Sprintf(format, args...)}
}

// RefusalOf returns err as a refusal. Unknown errors count as failures on the way.
func RefusalOf(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return Refuse(proto.Unavailable, "failed", "the host gave no valid answer")
}

// refusalStatus maps codes to HTTP statuses. The status of all other codes is 502.
var refusalStatus = map[proto.Code]int{
	proto.InvalidArgument:  http.StatusBadRequest,
	proto.PermissionDenied: http.StatusForbidden,
	proto.TooLarge:         http.StatusRequestHeaderFieldsTooLarge,
	proto.TimedOut:         http.StatusGatewayTimeout,
	proto.Unsupported:      http.StatusNotImplemented,
}

// Answer returns the refusal as an HTTP response, after which the connection is closed. The sentence is also in the
// status line, because clients show that for a failed CONNECT. All of it is printable ASCII.
func (r *Refusal) Answer() []byte {
	text := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, r.Text)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nProxy-Status: "+
		"berth; error=%s\r\nConnection: close\r\n\r\n%s\n",
		cmp.Or(refusalStatus[r.Code], http.StatusBadGateway), text, len(text)+1, r.Reason, text)
}

package egress

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"berth/proto"
)

// A refusal is the reason why a request goes nowhere.
type refusal struct {
	code   proto.Code // the error code, as everywhere
	reason string     // one word, for metrics
	text   string     // a sentence for the client: what is wrong, and the way out
}

func (r *refusal) Error() string { return r.text }

func refuse(code proto.Code, reason, format string, args ...any) *refusal {
	return &refusal{code, reason, fmt.Sprintf(format, args...)}
}

// refusalOf is err as a refusal. Unknown errors count as failures on the way.
func refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return refuse(proto.Unavailable, "failed", "the host did not answer as it should")
}

// refusalStatus maps codes to HTTP statuses. The status of all other codes is 502.
var refusalStatus = map[proto.Code]int{
	proto.InvalidArgument:  http.StatusBadRequest,
	proto.PermissionDenied: http.StatusForbidden,
	proto.TooLarge:         http.StatusRequestHeaderFieldsTooLarge,
	proto.TimedOut:         http.StatusGatewayTimeout,
	proto.Unsupported:      http.StatusNotImplemented,
}

// answer is the refusal as an HTTP response, after which the connection is closed. The sentence is also in the status
// line, because clients show that for a failed CONNECT. All of it is printable ASCII.
func (r *refusal) answer() []byte {
	text := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, r.text)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nProxy-Status: "+
		"berth; error=%s\r\nConnection: close\r\n\r\n%s\n",
		cmp.Or(refusalStatus[r.code], http.StatusBadGateway), text, len(text)+1, r.reason, text)
}

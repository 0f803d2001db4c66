package sniff

import (
	"bufio"
	"bytes"
	"strings"

	"berth/egress"
	"berth/proto"
)

// A Head is what the proxy needs of a request's head beyond net/http.
type Head struct {
	hosts  []string // values of Host
	Bodied bool     // it announces a body
}

// HeadBytes bounds the head of a request, which is kept in memory.
const HeadBytes = 32 << 10

var headEnd = []byte("\r\n\r\n")

// ReadHead waits for a complete head, which stays in the reader, and checks its bytes. A head that two programs may
// read as two different requests is refused. It fails with io.EOF at the end of the connection.
func ReadHead(r *bufio.Reader) (Head, error) {
	for seen := 0; ; {
		if _, err := r.Peek(seen + 1); err != nil {
			return Head{}, err
		}
		b, _ := r.Peek(r.Buffered())
		if err := checkBytes(b, seen); err != nil {
			return Head{}, err
		}
		if i := bytes.Index(b[max(0, seen-len(headEnd)):], headEnd); i >= 0 {
			return parseHead(string(b[:max(0, seen-len(headEnd))+i]))
		}
		if seen = len(b); seen >= HeadBytes {
			return Head{}, egress.Refuse(proto.TooLarge, "head_too_large",
				"the head of the request has more than %d bytes",
				HeadBytes)
		}
	}
}

// checkBytes refuses control characters and irregular line ends in b after the first seen bytes, up to the end of the
// head.
func checkBytes(b []byte, seen int) error {
	end := len(b)
	if i := bytes.Index(b, headEnd); i >= 0 {
		end = i + len(headEnd)
	}
	for i := seen; i < end; i++ {
		c := b[i]
		bare := c == '\n' && (i == 0 || b[i-1] != '\r') || c != '\n' && i > 0 && b[i-1] == '\r'
		if bare || c < ' ' && c != '\r' && c != '\n' && c != '\t' || c == 0x7f {
			return BadRequest("the head of the request has the byte 0x%02x, which is not allowed there", c)
		}
	}
	return nil
}

// parseHead reads the fields that matter here.
func parseHead(text string) (h Head, err error) {
	lines := strings.Split(text, "\r\n")
	var length, coding int
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return h, BadRequest("a line of the request's head is not \"name: value\"")
		}
		switch strings.ToLower(name) {
		case "host":
			h.hosts = append(h.hosts, strings.Trim(value, " \t"))
		case "content-length":
			length++
		case "transfer-encoding":
			coding++
		}
	}
	h.Bodied = length+coding > 0
	if length+coding > 1 {
		return h, BadRequest("the request states the length of its body more than once")
	}
	return h, nil
}

// BadRequest returns the refusal for a request that is not valid HTTP.
func BadRequest(format string, args ...any) error {
	return egress.Refuse(proto.InvalidArgument, "bad_request", format, args...)
}

// CheckHost refuses a Host header that is missing, repeated or names another host than t.
func (h Head) CheckHost(t egress.Target, optional bool) error {
	if len(h.hosts) == 0 && optional {
		return nil
	}
	if len(h.hosts) != 1 {
		return egress.Refuse(proto.PermissionDenied, "host_mismatch", "the request has %d Host headers; it must have "+
			"one", len(h.hosts))
	}
	got, err := egress.ParseTarget(h.hosts[0], t.Port)
	if err == nil && got == t || err == nil && got.Port == 80 && egress.IsWeb(t.Port) && got.Host() == t.Host() {
		return nil
	}
	return egress.Refuse(proto.PermissionDenied, "host_mismatch", "the request goes to %s and its Host header says %+q",
		t, h.hosts[0])
}

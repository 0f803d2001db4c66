package attack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"berth/proto"
)

// Group 43: bodies of JSON.
// Go's decoder takes the last of two fields, and ignores unknown ones and letters' case. Each is a way for
// a check and its use to see two different bodies.
var _ = register(
	Case{
		// A body that is taken although it was misread does something that nobody asked for.
		Group: 43, Name: "json/hostile-bodies",
		Tries: "send every documented route that takes JSON bodies that are deep, doubled, of other types, with " +
			"fields nobody knows, numbers that no type holds, NaN, null, bytes that are not UTF-8, and none",
		Wants: "each is refused with a typed 4xx that says what is wrong",
		Run:   hostileJSON,
	},
	Case{
		// The body has to be read to be refused; how much of it is the daemon's choice, not the client's.
		Group: 43, Name: "json/endless-body",
		Tries: "stream 1 GiB of JSON to routes that take JSON",
		Wants: "413 or a cut connection, and no more read on than it takes for a client to see why",
		Run:   endlessJSON,
	},
	Case{
		// A page of another origin may send three media types without asking, and JSON is none of them:
		// taking JSON under another type would open the API to any page.
		Group: 43, Name: "json/other-media",
		Tries: "the same JSON as XML, as a form with files, in UTF-16, compressed",
		Wants: "415, or 400 where the bytes are not JSON",
		Run:   otherMedia,
	},
)

// hostile makes bodies that no route takes, whatever its fields. They have megabytes, which no other command is to
// spend its start on.
func hostile() map[string]string {
	return map[string]string{
		// encoding/json gives up at 10,000.
		"10,001 arrays deep":   strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
		"100,000 objects deep": strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000),
		"an array":             `[]`,
		"a string":             `"x"`,
		"a number":             `1`,
		"true":                 `true`,
		"null":                 `null`,
		"NaN":                  `NaN`,
		"two values":           `{} {}`,
		"half a value":         `{"a":`,
		// What is not known is refused, so that a misspelt limit does not silently become no limit.
		"an unknown field": `{"no_such_field_at_all":1}`,
		"a prototype":      `{"__proto__":{"admin":true}}`,
		// Twins are how a filter in front reads one value and the daemon the other one.
		"a field twice": `{"no_such_field_at_all":1,"no_such_field_at_all":2}`,
		"a comment":     `{/* */}`,
		"single quotes": `{'a':1}`,
		"not UTF-8":     "{\"a\":\"\xff\xfe\"}",
		// Such a string cannot be written as UTF-8; what decoders put in its place differs.
		"half a surrogate":  `{"a":"\ud800"}`,
		"a NUL":             "{\"a\x00\":1}",
		"a byte order mark": "\xef\xbb\xbf{}",
		"UTF-16":            "{\x00}\x00",
		// White space is legal JSON, and would be read without end.
		"space and then nothing": strings.Repeat(" ", 1<<20) + "{",
		// No type of Go's holds it.
		"a number of 1 MiB":      `{"a":` + strings.Repeat("9", 1<<20) + "}",
		"a huge exponent":        `{"a":1e99999999999}`,
		"100,000 unknown fields": "{" + strings.Repeat(`"a":1,`, 100_000) + `"b":2}`,
	}
}

// jsonRoutes are the routes to try, with a container that is there.
// jsonRoutes takes the routes from the document. A container that is there gets a body past the check of
// the ID, to the decoder.
func (t *Target) jsonRoutes(ctx context.Context) (list []route, values map[string]string, err error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return nil, nil, err
	}
	res, err := t.Bash(ctx, con.ID, "true")
	if err != nil {
		return nil, nil, err
	}
	routes, err := t.routes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range routes {
		if r.json {
			list = append(list, r)
		}
	}
	// Less than ten would mean that the document has changed its form, and nothing was tried.
	if len(list) < 10 {
		return nil, nil, fmt.Errorf("the document has only %d routes that take JSON", len(list))
	}
	return list, map[string]string{"id": con.ID, "exec": res.Exec.ID, "job": res.Exec.JobID}, nil
}

// hostileJSON sends each body to each route.
func hostileJSON(ctx context.Context, t *Target) (string, error) {
	routes, values, err := t.jsonRoutes(ctx)
	if err != nil {
		return "", err
	}
	bodies := hostile()
	for _, r := range routes {
		if strings.HasPrefix(r.path, "/v1/keys/{") {
			values["id"] = "key_0000000000000000" // bodies are read before keys are looked for, or the other way round
		}
		for what, body := range bodies {
			a, err := t.ask(ctx, r.method, r.at(values), nil, strings.NewReader(body), "Content-Type",
				"application/json")
			if err != nil {
				return "", err
			}
			if a.status < 400 || a.status >= 500 || a.code() == "" {
				return "", Breached("%s %s took %s: %d %.200s", r.method, r.path, what, a.status, a.body)
			}
			// An error that repeats a body of a mebibyte doubles what an attacker sends.
			if len(a.body) > 4<<10 {
				return "", Breached("%s %s repeats %d bytes of %s", r.method, r.path, len(a.body), what)
			}
		}
	}
	return fmt.Sprintf("%d bodies to each of %d routes, all refused by name", len(bodies), len(routes)), nil
}

// repeat is a reader of the same bytes for ever, up to a limit, which counts what was taken.
// It counts what the connection took, which is more than the daemon read: buffers of both kernels stand in
// between.
type repeat struct {
	first, again string
	taken        atomic.Int64 // read while a connection that was given up still takes more
	limit        int64
}

// Read gives the beginning once and then the same piece again and again, so that a gigabyte of body needs
// no memory here.
func (r *repeat) Read(p []byte) (n int, err error) {
	if r.taken.Load() >= r.limit {
		return 0, io.EOF
	}
	for n < len(p) {
		if r.first != "" {
			c := copy(p[n:], r.first)
			n, r.first = n+c, r.first[c:]
			continue
		}
		n += copy(p[n:], r.again)
	}
	r.taken.Add(int64(n))
	return n, nil
}

// endlessJSON sends a string that does not end, in a body without a length.
func endlessJSON(ctx context.Context, t *Target) (string, error) {
	routes, values, err := t.jsonRoutes(ctx)
	if err != nil {
		return "", err
	}
	most := int64(0)
	for _, r := range routes[:min(len(routes), 6)] { // they share the reader that refuses
		body := &repeat{first: `{"command":"`, again: strings.Repeat("a", 1<<12), limit: 1 << 30}
		a, err := t.ask(ctx, r.method, r.at(values), nil, body, "Content-Type", "application/json")
		taken := body.taken.Load()
		most = max(most, taken)
		if taken > 128<<20 { // after the refusal the daemon throws away up to 64 MiB, and sockets have buffers
			return "", Breached("%s %s took %d bytes", r.method, r.path, taken)
		}
		if err == nil && a.status != http.StatusRequestEntityTooLarge {
			return "", Breached("%s %s answered %d: %.200s", r.method, r.path, a.status, a.body)
		}
	}
	return fmt.Sprintf("413 or a cut connection after at most %d bytes", most), nil
}

// otherMedia sends harmless bodies under types that are not JSON, and JSON in codings that nobody asked
// for.
func otherMedia(ctx context.Context, t *Target) (string, error) {
	for _, try := range []struct{ header, value, body string }{
		{"Content-Type", "text/xml", `<command>true</command>`},
		{"Content-Type", "text/plain", `{}`},
		{"Content-Type", "multipart/form-data; boundary=x", "--x--"},
		{"Content-Type", "application/json-patch", `{}`},
		{"Content-Type", "application/json; charset=utf-16", "{\x00}\x00"},
		{"Content-Type", "not a type", `{}`},
		{"Content-Encoding", "gzip", `{}`},
		{"Content-Encoding", "br, gzip", `{}`},
	} {
		a, err := t.ask(ctx, "POST", "/v1/containers", nil, strings.NewReader(try.body), try.header, try.value)
		if err != nil {
			return "", err
		}
		if a.status != http.StatusUnsupportedMediaType && a.status != http.StatusBadRequest {
			return "", Breached("%s: %s was answered %d %.200s", try.header, try.value, a.status, a.body)
		}
	}
	return "all refused", nil
}

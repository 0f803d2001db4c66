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

// Group 43: JSON bodies. Go's decoder uses the last of two equal fields, and ignores unknown fields and letter case.
// In each of these ways a check and its use may see different bodies.
var _ = register(
	Case{
		// If a body is accepted although it was misread, the daemon does something that was not requested.
		Group: 43, Name: "json/hostile-bodies",
		Tries: "send every documented route that takes JSON bodies that are deep, doubled, of other types, with " +
			"fields nobody knows, numbers that no type holds, NaN, null, bytes that are not UTF-8, and none",
		Wants: "each is refused with a typed 4xx that says what is wrong",
		Run:   hostileJSON,
	},
	Case{
		// A body must be read to be refused. The daemon must limit how much of it, not the client.
		Group: 43, Name: "json/endless-body",
		Tries: "stream 1 GiB of JSON to routes that take JSON",
		Wants: "413 or a cut connection, and no more read on than it takes for a client to see why",
		Run:   endlessJSON,
	},
	Case{
		// A page of another origin may send three media types without a preflight, and JSON is not one of them. If
		// the API accepted JSON under another type, any page could use it.
		Group: 43, Name: "json/other-media",
		Tries: "the same JSON as XML, as a form with files, in UTF-16, compressed",
		Wants: "415, or 400 where the bytes are not JSON",
		Run:   otherMedia,
	},
)

// hostile returns bodies that every route must refuse. They are made on demand, since they have megabytes, which
// would delay the start of other commands.
func hostile() map[string]string {
	return map[string]string{
		// encoding/json stops at 10,000.
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
		// Unknown fields are refused, so that a misspelt limit is not silently ignored.
		"an unknown field": `{"no_such_field_at_all":1}`,
		"a prototype":      `{"__proto__":{"admin":true}}`,
		// With duplicates, a filter in front may read one value and the daemon the other.
		"a field twice": `{"no_such_field_at_all":1,"no_such_field_at_all":2}`,
		"a comment":     `{/* */}`,
		"single quotes": `{'a':1}`,
		"not UTF-8":     "{\"a\":\"\xff\xfe\"}",
		// Such a string has no UTF-8 form; decoders replace it differently.
		"half a surrogate":  `{"a":"\ud800"}`,
		"a NUL":             "{\"a\x00\":1}",
		"a byte order mark": "\xef\xbb\xbf{}",
		"UTF-16":            "{\x00}\x00",
		// White space is valid JSON, and could be read without end.
		"space and then nothing": strings.Repeat(" ", 1<<20) + "{",
		// No Go type can hold it.
		"a number of 1 MiB":      `{"a":` + strings.Repeat("9", 1<<20) + "}",
		"a huge exponent":        `{"a":1e99999999999}`,
		"100,000 unknown fields": "{" + strings.Repeat(`"a":1,`, 100_000) + `"b":2}`,
	}
}

// jsonRoutes returns the routes to try, from the API document, and an existing container. With a container that
// exists, a body passes the check of the ID and reaches the decoder.
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
	// Fewer than ten would mean that the document has a new format, and nothing was tried.
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
			// some routes read the body before they look up the key, others after it
			values["id"] = "key_0000000000000000"
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
			// An error that repeats a body of 1 MiB doubles the attacker's traffic.
			if len(a.body) > 4<<10 {
				return "", Breached("%s %s repeats %d bytes of %s", r.method, r.path, len(a.body), what)
			}
		}
	}
	return fmt.Sprintf("%d bodies to each of %d routes, all refused by name", len(bodies), len(routes)), nil
}

// repeat is a reader that repeats the same bytes up to a limit and counts what was read. It counts what the
// connection took. The daemon has read less, since both kernels buffer data.
type repeat struct {
	first, again string
	taken        atomic.Int64 // read while an abandoned connection still reads
	limit        int64
}

// Read returns the beginning once and then repeats the same piece, so that a body of 1 GB needs no memory here.
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

// endlessJSON sends an endless string in a body without a length.
func endlessJSON(ctx context.Context, t *Target) (string, error) {
	routes, values, err := t.jsonRoutes(ctx)
	if err != nil {
		return "", err
	}
	most := int64(0)
	for _, r := range routes[:min(len(routes), 6)] { // all routes use the same reader, which refuses
		body := &repeat{first: `{"command":"`, again: strings.Repeat("a", 1<<12), limit: 1 << 30}
		a, err := t.ask(ctx, r.method, r.at(values), nil, body, "Content-Type", "application/json")
		taken := body.taken.Load()
		most = max(most, taken)
		if taken > 128<<20 { // after the refusal the daemon discards up to 64 MiB, and sockets have buffers
			return "", Breached("%s %s took %d bytes", r.method, r.path, taken)
		}
		if err == nil && a.status != http.StatusRequestEntityTooLarge {
			return "", Breached("%s %s answered %d: %.200s", r.method, r.path, a.status, a.body)
		}
	}
	return fmt.Sprintf("413 or a cut connection after at most %d bytes", most), nil
}

// otherMedia sends harmless bodies with types other than JSON, and JSON in unsupported encodings.
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

package attack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/proto"
)

// Group 44: HTTP itself. The daemon may run behind a proxy. If two parsers read the same bytes differently, a request
// can be hidden from the one that checks.
var _ = register(
	// Request smuggling (CWE-444): what one side takes for the body, the other side takes for the next request, which
	// then runs with another client's rights.
	Case{
		Group: 44, Name: "http/smuggling",
		Tries: "requests whose length can be read in two ways, with a second request where they may end: both " +
			"lengths, two lengths, odd encodings, broken chunks, folded headers, bare line feeds",
		Wants: "the hidden request is never answered, and nothing is a 5xx of the daemon's own",
		Run:   smuggling,
	},
	// The daemon must not act as a proxy: no tunnel, no echo, no other host.
	Case{
		Group: 44, Name: "http/malformed",
		Tries: "headers and request lines of 1 MiB, NUL bytes, HTTP/0.9, HTTP/2 in clear text, TRACE, CONNECT, odd " +
			"methods, no host, absolute targets, bad escapes",
		Wants: "a 4xx, an answer as documented, or a closed connection; TRACE and CONNECT do nothing",
		Run:   malformed,
	},
	// If a path is normalized after the check of rights, it names something else than what was checked. A redirect to
	// the normalized path reveals what exists.
	Case{
		Group: 44, Name: "http/paths",
		Tries: "double, trailing and encoded slashes, dots, NUL, backslashes, 60 KiB of path, other case, on routes that exist",
		Wants: "404 or 400 as JSON, never a redirect and never another route",
		Run:   oddPaths,
	},
	// Slowloris (2009): each connection costs the attacker one byte now and then, and costs the server a connection
	// slot.
	Case{
		Group: 44, Name: "http/slow-header",
		Tries: "send a header one byte at a time, without end, on many connections",
		Wants: "each is cut after about 10 seconds, as documented",
		Run:   slowHeader,
	},
	// The same with a body: the header is complete, so limits for headers do not help.
	Case{
		Group: 44, Name: "http/slow-body", Slow: true,
		Tries: "announce a body and send nothing of it",
		Wants: "504 or a cut connection after about a minute, as documented",
		Run:   slowBody,
	},
	// Idle connections should cost only some memory. If their number is limited, a client that uses up the limit
	// locks out the others.
	Case{
		Group: 44, Name: "http/open-connections", Alone: true,
		Tries: "hold thousands of connections open that never ask for anything, and as many that stopped in the " +
			"middle of a header",
		Wants: "a command runs as it did before",
		Run:   openConnections,
	},
	// CVE-2011-3192 of Apache: many overlapping ranges of one file used up the server's memory.
	Case{
		Group: 44, Name: "http/ranges",
		Tries: "ranges that overlap, a thousand of them, reversed, behind the end, negative, beyond 2^63, of other units",
		Wants: "206, 416 or the whole file once: never more bytes than the file has",
		Run:   rangeGames,
	},
	// A web page in a browser on the operator's machine can reach loopback. It may send simple requests, but without
	// CORS headers the browser does not show it the answer.
	Case{
		Group: 44, Name: "http/cross-origin",
		Tries: "ask as a page of another origin does: preflights, simple requests, credentials",
		Wants: "no header that lets a browser hand the answer over",
		Run:   crossOrigin,
	},
)

// talk sends bytes on a new connection and returns everything that comes back until the connection is closed or limit
// has passed. If the daemon cuts the connection, talk returns what came before: most refusals come that way.
func (t *Target) talk(ctx context.Context, text string, limit time.Duration) ([]byte, error) {
	conn, err := t.Dial(ctx, limit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }() // the daemon may answer and close before it has read everything
	data, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	var late net.Error
	if errors.As(err, &late) && late.Timeout() || errors.Is(err, net.ErrClosed) || len(data) > 0 {
		err = nil
	}
	if err != nil { // reset: the daemon did not read everything
		return data, nil
	}
	return data, nil
}

// statuses returns the status codes of all answers in data. More than one on a connection is what smuggling would
// cause.
func statuses(data []byte) (list []int) {
	for line := range bytes.Lines(data) {
		var status int
		if _, err := fmt.Sscanf(string(line), "HTTP/1.1 %d", &status); err == nil {
			list = append(list, status)
		}
	}
	return list
}

// smuggling hides a second request where the body of each request may end. The hidden request is for /v1/info with a
// query key that no route has. The error names that key, so the answer can be recognized.
func smuggling(ctx context.Context, t *Target) (string, error) {
	auth := "Host: x\r\nX-Api-Key: " + t.Key + "\r\n"
	hidden := "GET /v1/info?smuggled HTTP/1.1\r\n" + auth + "Connection: close\r\n\r\n"
	post := "POST /v1/containers/container_0000000000000000000000/extend HTTP/1.1\r\n" + auth
	size := fmt.Sprint(len(hidden))
	for what, text := range map[string]string{
		// One parser uses the length, another one the chunks. A proxy and a server may disagree on each of these
		// forms.
		"both lengths, chunked first": post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
		"two lengths":                 post + "Content-Length: 0\r\nContent-Length: " + size + "\r\n\r\n" + hidden,
		"a list of lengths":           post + "Content-Length: 0, " + size + "\r\n\r\n" + hidden,
		"a signed length":             post + "Content-Length: +" + size + "\r\n\r\n" + hidden,
		"a negative length":           post + "Content-Length: -1\r\n\r\n" + hidden,
		"a hexadecimal length":        post + "Content-Length: 0x0\r\n\r\n" + hidden,
		"a space before the colon":    post + "Content-Length : 0\r\n\r\n" + hidden,
		"a folded header": post + "X: y\r\n Content-Length: 0\r\nTransfer-Encoding:\r\n chunked\r\n\r\n" +
			hidden,
		"an unknown encoding": post + "Transfer-Encoding: xchunked\r\n\r\n" + hidden,
		"two encodings": post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: " +
			"identity\r\n\r\n0\r\n\r\n" + hidden,
		"a tab in the encoding":    post + "Transfer-Encoding:\tchunked, cow\r\n\r\n0\r\n\r\n" + hidden,
		"a chunk size with a sign": post + "Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + hidden,
		// One digit more than fits into 64 bits: truncated, it is another number.
		"a chunk size that wraps":   post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + hidden,
		"a chunk size that is none": post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n" + hidden,
		"a chunk without its end":   post + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}x0\r\n\r\n" + hidden,
		"a chunk extension of 64 KiB": post + "Transfer-Encoding: chunked\r\n\r\n0;" + strings.Repeat("x", 64<<10) +
			"\r\n\r\n" + hidden,
		"a body under GET, as a chunk": "GET /v1/nowhere HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden),
		"a body under GET, by length": "GET /v1/nowhere HTTP/1.1\r\n" + auth + "Content-Length: " + size +
			"\r\n\r\n" + hidden,
		"a header line without a colon": post + "Content-Length\r\n\r\n" + hidden,
		"a NUL in a header":             post + "X: a\x00b\r\nContent-Length: 0\r\n\r\n" + hidden,
		"a bare CR":                     post + "X: a\rContent-Length: 0\r\n\r\n" + hidden,
	} {
		data, err := t.talk(ctx, text, 3*time.Second)
		if err != nil {
			return "", err
		}
		// Two answers on one connection mean that the hidden request was answered. So does the name of its query key.
		if bytes.Contains(data, []byte("smuggled")) || len(statuses(data)) > 1 {
			return "", Breached("%s: the hidden request was answered: %.300s", what, data)
		}
		for _, s := range statuses(data) {
			if s == http.StatusInternalServerError || s < 400 {
				return "", Breached("%s: answered %d: %.300s", what, s, data)
			}
		}
	}
	return "no hidden request was answered", nil
}

// malformed sends requests that no client sends. Closing the connection without an answer is as good as a 400.
func malformed(ctx context.Context, t *Target) (string, error) {
	auth := "Host: x\r\nX-Api-Key: " + t.Key + "\r\nConnection: close\r\n"
	mib := strings.Repeat("a", 1<<20)
	for what, text := range map[string]string{
		"a header of 1 MiB": "GET /v1/info HTTP/1.1\r\n" + auth + "X: " + mib + "\r\n\r\n",
		"10,000 headers": "GET /v1/info HTTP/1.1\r\n" + auth + strings.Repeat("X-Header: abcdefgh\r\n",
			10_000) + "\r\n",
		"a request line of 1 MiB": "GET /" + mib + " HTTP/1.1\r\n" + auth + "\r\n",
		"a method of 1 MiB":       mib + " /v1/info HTTP/1.1\r\n" + auth + "\r\n",
		"no host":                 "GET /v1/info HTTP/1.1\r\nX-Api-Key: " + t.Key + "\r\n\r\n",
		"two hosts":               "GET /v1/info HTTP/1.1\r\nHost: y\r\n" + auth + "\r\n",
		"a host with a space":     "GET /v1/info HTTP/1.1\r\nHost: a b\r\nX-Api-Key: " + t.Key + "\r\n\r\n",
		"HTTP/0.9":                "GET /v1/info\r\n\r\n",
		"HTTP/9.9":                "GET /v1/info HTTP/9.9\r\n" + auth + "\r\n",
		"the preface of HTTP/2":   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		// TRACE would return the request's headers with the key (cross-site tracing, 2003).
		"TRACE":   "TRACE /v1/info HTTP/1.1\r\n" + auth + "X-Secret: echo-me\r\n\r\n",
		"CONNECT": "CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + auth + "\r\n",
		// As a proxy, the daemon would fetch the credentials of a cloud machine from its metadata service.
		"a target of another host":  "GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\n" + auth + "\r\n",
		"an asterisk":               "DELETE * HTTP/1.1\r\n" + auth + "\r\n",
		"an escape that is none":    "GET /v1/containers/%zz HTTP/1.1\r\n" + auth + "\r\n",
		"a NUL in the target":       "GET /v1/in\x00fo HTTP/1.1\r\n" + auth + "\r\n",
		"a line feed in the target": "GET /v1/nowhere%0aX:y HTTP/1.1\r\n" + auth + "\r\n",
		"an odd method":             "BREW /v1/info HTTP/1.1\r\n" + auth + "\r\n",
		"a lower-case method":       "delete /v1/containers HTTP/1.1\r\n" + auth + "\r\n",
		"an expectation": "POST /v1/containers HTTP/1.1\r\n" + auth +
			"Expect: 200-maybe\r\nContent-Length: 1\r\n\r\n{",
		"random bytes": string(randomBytes(4096)) + "\r\n\r\n",
		// The first bytes of a TLS handshake, from a client that is configured for https.
		"TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	} {
		data, err := t.talk(ctx, text, 3*time.Second)
		if err != nil {
			return "", err
		}
		for _, s := range statuses(data) {
			if s < 400 || s == http.StatusInternalServerError {
				return "", Breached("%s: answered %d: %.300s", what, s, data)
			}
		}
		if bytes.Contains(data, []byte("echo-me")) {
			return "", Breached("%s: the header came back", what)
		}
	}
	// h2c would be a second protocol on the same port, which bypasses all checks of HTTP/1.1.
	a, err := t.Raw(ctx, "GET", "/v1/info", http.Header{"X-Api-Key": {t.Key}, "Connection": {"Upgrade, HTTP2-Settings"},
		"Upgrade": {"h2c"}, "Http2-Settings": {"AAMAAABkAAQAAP__"}}, nil)
	if err != nil || a.Status == http.StatusSwitchingProtocols {
		return "", Breached("an upgrade to h2c: %v %v", a, err)
	}
	return "all refused or closed, and nothing was upgraded", nil
}

// oddPaths requests existing routes by other paths, which must not exist.
func oddPaths(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	for _, path := range []string{
		// The mux of net/http would redirect some of these to the clean path; here each must be refused.
		"//v1/info", "/v1//info", "/v1/info/", "/v1/./info", "/v1/x/../info", "/v1/%2e%2e/v1/info", "/v1%2finfo",
		"/V1/INFO", "/v1/info%00", "/v1/info%20", "/v1/info;x=y",
		`/v1\info`, "/v1/info.json", "/v1/containers/", "/v1/containers//fs/list?path=/",
		"/v1/containers/%00/fs/list?path=/", "/v1/containers/" + con.ID + "/", "/v1/containers/" + con.ID +
			"%2ffs%2flist?path=/",
		"/v1/containers/" + con.ID + "%00", "/v1/containers/" + con.ID + "%20", "/v1/containers/../containers/" +
			con.ID, "/v1/containers/" + strings.ToUpper(con.ID), "/v1/containers/" + con.ID + "/execs/../..",
		"/v1/containers/" + strings.Repeat("a", 60<<10), "/v1/containers/%F0%9F%92%A9", "/v1/containers/%FF%FE",
		"/v1/files/..%2f..%2fledger.db", "/v1/files/%2e%2e/content", "/..%2f..%2fetc%2fpasswd",
		"/v1/containers/" + con.ID + "/fs/list?path=/&path=/tmp", "/v1/containers/" + con.ID + "/fs/list?path",
		"/v1/containers/" + con.ID + "/fs/list?path=%zz", "/v1/containers/" + con.ID + "/fs/list?path=/;as=root",
		"/v1/containers/" + con.ID + "/fs/list?path=a%00b",
		// Numbers that are not decimal, and keys in another case, must be refused and not guessed.
		"/v1/containers?limit=99999999999999999999999", "/v1/containers?limit=-1", "/v1/containers?limit=0x10",
		"/v1/containers?limit=1e3", "/v1/containers?LIMIT=1", "/v1/containers?state[]=running",
		"/v1/containers?label=%00",
	} {
		h := t.KeyHeader()
		h.Set("anthropic-version", "2023-06-01")
		a, err := t.Raw(ctx, "GET", path, h, nil)
		if err != nil {
			return "", err
		}
		if a.Status < 400 || a.Status >= 500 || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") &&
			a.Status != http.StatusBadRequest {
			if path == "/v1/containers?label=%00" && a.Status == http.StatusBadRequest {
				continue
			}
			return "", Breached("GET %.80s was answered %d %s: %.200s", path, a.Status, a.Header.Get("Content-Type"),
				a.Body)
		}
	}
	return "all refused", nil
}

// slowHeader uses twenty concurrent connections; each has its own clock.
func slowHeader(ctx context.Context, t *Target) (string, error) {
	const connections, documented = 20, 10 * time.Second
	began := time.Now()
	ended := make(chan error, connections)
	for range connections {
		go func() { ended <- t.drip(ctx, documented*3) }()
	}
	for range connections {
		if err := <-ended; err != nil {
			return "", err
		}
	}
	// Less than half of the documented time means that something else closed them. The case then shows nothing.
	if took := time.Since(began); took < documented/2 {
		return "", fmt.Errorf("the connections ended after %s, for another reason", took)
	}
	return fmt.Sprintf("%d connections were cut within %s", connections, time.Since(began).Round(time.Second)), nil
}

// drip sends a header slowly until the daemon closes the connection. A byte every 200 ms prevents any idle timeout.
// So the limit must apply to the whole header.
func (t *Target) drip(ctx context.Context, limit time.Duration) error {
	conn, err := t.Dial(ctx, limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, err := io.WriteString(conn, "GET /v1/info HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		for err == nil {
			time.Sleep(200 * time.Millisecond)
			_, err = conn.Write([]byte("a"))
		}
	}()
	_, err = io.Copy(io.Discard, conn)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return Breached("a header that never ends was waited for over %s", limit)
	}
	return nil
}

// slowBody sends one byte of a body that announces a hundred.
func slowBody(ctx context.Context, t *Target) (string, error) {
	conn, err := t.Dial(ctx, 3*time.Minute)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	began := time.Now()
	if _, err := fmt.Fprintf(conn, "POST /v1/containers HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: "+
		"application/json\r\nContent-Length: 100\r\n\r\n{", t.Key); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	took := time.Since(began).Round(time.Second)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return "", Breached("it was waited for over %s", took)
	}
	if err == nil && res.StatusCode < 400 {
		return "", Breached("half a body was answered %d", res.StatusCode)
	}
	return fmt.Sprintf("it was given up after %s", took), nil
}

// openConnections holds two kinds of connections: silent ones, and ones that stopped in the middle of a header.
func openConnections(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := range t.connections() {
		c, err := t.Dial(ctx, 10*time.Minute)
		if err != nil {
			return "", fmt.Errorf("after %d connections: %w", i, err)
		}
		open = append(open, c)
		if i%2 == 1 {
			if _, err := io.WriteString(c, "GET /v1/info HTTP/1.1\r\nHost: x"); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("with %d open a command still ran", len(open)), t.alive(ctx, con.ID)
}

// rangeGames requests ranges of a file of 1000 bytes. A longer answer is a breach.
func rangeGames(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const size = 1000
	if _, err := t.FS(con.ID, proto.UserDefault).Write(ctx, "/workspace/f", 0, strings.NewReader(
		strings.Repeat("0123456789", size/10)), size); err != nil {
		return "", err
	}
	// A thousand overlapping ranges are a thousand times the file, for a header of 3 kB.
	overlapping := "bytes=" + strings.TrimSuffix(strings.Repeat("0-,", 1000), ",")
	for _, header := range []string{
		overlapping, "bytes=0-999,0-999,0-999", "bytes=999-0", "bytes=1000-", "bytes=1000-2000", "bytes=-0",
		"bytes=-1001", "bytes=0-18446744073709551616", "bytes=9223372036854775807-9223372036854775807",
		"bytes=-9223372036854775808", "bytes=--1", "bytes=0-+5", "bytes=0x0-0x5", "bytes=,", "bytes=", "bytes",
		"lines=1-2", "bytes=5-5,", "bytes= 1 - 2 ", "BYTES=0-1", "bytes=0-0\t", strings.Repeat("bytes=0-0,", 500),
	} {
		a, err := t.ask(ctx, "GET", "/v1/containers/"+con.ID+"/fs/content", url.Values{"path": {"/workspace/f"}}, nil,
			"Range", header)
		if err != nil {
			return "", err
		}
		switch {
		case a.status != http.StatusOK && a.status != http.StatusPartialContent &&
			a.status != http.StatusRequestedRangeNotSatisfiable:
			return "", Breached("%.60q was answered %d %.200s", header, a.status, a.body)
		case a.status != http.StatusRequestedRangeNotSatisfiable && len(a.body) > size, a.cut:
			return "", Breached("%.60q was answered with %d bytes of %d, cut %v", header, len(a.body), size, a.cut)
		}
	}
	return "never more than the file", nil
}

// crossOrigin checks the answers to requests that browsers send for a page: preflights, and simple requests with
// credentials.
func crossOrigin(ctx context.Context, t *Target) (string, error) {
	for _, origin := range []string{"https://attacker.example", "null", "*", "http://127.0.0.1.attacker.example",
		"http://localhost:1"} {
		if err := crossOriginOf(ctx, t, origin); err != nil {
			return "", err
		}
	}
	return "no origin is let in", nil
}

func crossOriginOf(ctx context.Context, t *Target, origin string) error {
	for _, method := range []string{"OPTIONS", "GET", "POST", "HEAD"} {
		h := t.KeyHeader()
		h.Set("Origin", origin)
		h.Set("Access-Control-Request-Method", "POST")
		h.Set("Access-Control-Request-Headers", "x-api-key")
		// A browser sends this before it lets a public page access a private network.
		h.Set("Access-Control-Request-Private-Network", "true")
		for _, path := range []string{"/v1/info", "/v1/containers", "/v1/files", "/openapi.json", "/healthz"} {
			a, err := t.Raw(ctx, method, path, h, nil)
			if err != nil {
				return err
			}
			for name := range a.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					return Breached("%s %s is answered with %s: %s", method, path, name, a.Header.Get(name))
				}
			}
			if method == "OPTIONS" && (a.Status != http.StatusMethodNotAllowed || a.Header.Get("Allow") == "") {
				return Breached("OPTIONS %s was answered %d", path, a.Status)
			}
			if method == "HEAD" && len(a.Body) > 0 {
				return Breached("HEAD %s has a body", path)
			}
			// The request had a key, so it was allowed to succeed; remove what it created.
			if method == "POST" && path == "/v1/containers" && a.Status == http.StatusCreated {
				t.forget(a)
			}
		}
	}
	return nil
}

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/test/logtest"

	"github.com/prometheus/client_golang/prometheus"
)

const testKey = "test-key-0123456789"

// shout is a dialect that is easy to tell from Plain.
var shout = Dialect{Status: PlainStatus, Body: func(f Failure) any {
	return map[string]any{"shout": f.Err.Message, "code": f.Err.Code, "id": f.RequestID}
}}

// serving has s serve on an address of its own until stop is called. Serve's result is told then.
func serving(t *testing.T, s *Server) (addr string, stop context.CancelFunc, served <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Serve(ctx, l) }()
	return l.Addr().String(), stop, result
}

// A site is a served Server and what it logs.
type site struct {
	*httptest.Server
	server *Server
	log    *logtest.Buffer
	reg    *prometheus.Registry
}

// testOrigin is an origin whose pages may use the API.
const testOrigin = "https://app.example.org"

func newSite(t *testing.T, edges ...Edge) *site {
	t.Helper()
	s := &site{log: &logtest.Buffer{}, reg: prometheus.NewRegistry()}
	var err error
	s.server, err = New(Config{
		Auth: oneKey(testKey), Edges: append(edges, Ops(OpsConfig{Metrics: s.reg, Open: true,
			Ready: func(context.Context) error { return nil }})),
		Metrics: s.reg, Log: slog.New(slog.NewJSONHandler(s.log, nil)), MaxBodyBytes: 1000,
		Origins: Origins{testOrigin},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(s.server)
	t.Cleanup(s.Close)
	return s
}

// do sends a request with the right key and returns the answer and its body.
func (s *site) do(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", testKey)
	for i := 0; i < len(header); i += 2 {
		req.Header.Del(header[i])
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(data)
}

// failing makes an edge below /v1/shout whose routes fail in many ways.
func failing() Edge {
	fail := func(err error) Handler {
		return func(http.ResponseWriter, *http.Request, Caller) error { return err }
	}
	return Edge{Prefixes: []string{"/v1/shout"}, Header: "Loud", Dialect: shout, Routes: []Route{
		{Method: "GET", Pattern: "/v1/shout/who", Where: None,
			Handle: func(w http.ResponseWriter, _ *http.Request, c Caller) error {
				return JSON(w, 200, c)
			}},
		{Method: "POST", Pattern: "/v1/shout/echo", Where: None, Handle: func(w http.ResponseWriter, r *http.Request,
			_ Caller) error {
			data, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			_, err = w.Write(data)
			return err
		}},
		{Method: "GET", Pattern: "/v1/shout/secret", Where: None,
			Handle: fail(errors.New("open /var/lib/berth/x: no such file"))},
		{Method: "GET", Pattern: "/v1/shout/conflict", Where: None,
			Handle: fail(proto.Errorf(proto.AlreadyExists, "", "",
				"Taken."))},
		{Method: "GET", Pattern: "/v1/shout/busy", Where: None,
			Handle: fail(proto.Errorf(proto.TooMany, "", "", "Later."))},
		{Method: "GET", Pattern: "/v1/shout/panic", Where: None,
			Handle: func(http.ResponseWriter, *http.Request, Caller) error {
				panic("oops")
			}},
		{Method: "GET", Pattern: "/v1/shout/half", Where: None, Handle: func(w http.ResponseWriter, _ *http.Request,
			_ Caller) error {
			io.WriteString(w, "half an answer")
			http.NewResponseController(w).Flush()
			return errors.New("the disk broke")
		}},
	}}
}

func TestErrorsAreRenderedOnceInTheDialectOfThePath(t *testing.T) {
	s := newSite(t, failing())
	tests := []struct {
		method, path, body string
		header             []string
		status             int
		contains           string // of the body
		with               string // header=value
	}{
		{"GET", "/v1/shout/who", "", nil, 200, `{"Owner":"default"`, "Content-Type=application/json"},
		{"GET", "/v1/shout/who", "", []string{"X-Api-Key", ""}, 401, `"shout":"An API key is required`,
			"WWW-Authenticate=Bearer"},
		{"GET", "/v1/shout/who", "", []string{"X-Api-Key", "wrong"}, 401, `"shout":"Invalid API key`, ""},
		{"GET", "/v1/shout/who", "", []string{"X-Api-Key", "", "Authorization", "Bearer " + testKey}, 200, `"default"`,
			""},
		{"GET", "/v1/shout/who", "", []string{"X-Api-Key", "", "Authorization", "bearer  " + testKey}, 200, `"default"`,
			""},
		{"GET", "/v1/shout/who", "", []string{"X-Api-Key", "", "Authorization", "Basic " + testKey}, 401, `"shout"`,
			""},
		{"GET", "/v1/shout/who", "", []string{"Authorization", "Bearer " + testKey}, 200, `"default"`, ""},
		{"GET", "/v1/shout/who", "", []string{"X-Api-Key", "a proxy's", "Authorization", "Bearer " + testKey}, 200,
			`"default"`, ""},
		{"GET", "/v1/shout/nothing", "", nil, 404, `"shout":"There is no such endpoint`, ""},
		{"GET", "/v1/shouting", "", nil, 404, `{"error":{"code":"not_found"`, ""},
		{"GET", "/elsewhere", "", nil, 404, `{"error":{"code":"not_found"`, ""},
		{"GET", "/v1/shout//who", "", nil, 404, `"shout"`, ""},
		{"GET", "/v1/shout/../shout/who", "", nil, 404, `"shout"`, ""},
		{"GET", "//", "", nil, 404, `{"error":{"code":"not_found"`, ""},
		{"GET", "/v1/nothing", "", nil, 404, `"error":{"code":"not_found","message":"There is no such endpoint`, ""},
		{"GET", "/v1/nothing", "", []string{"Loud", "very"}, 404, `"shout":"There is no such endpoint`, ""},
		{"DELETE", "/v1/shout/who", "", nil, 405, `"shout":"This endpoint does not take`, "Allow=GET, HEAD"},
		{"GET", "/v1/shout/echo", "", nil, 405, `"shout"`, "Allow=POST"},
		{"POST", "/healthz", "", nil, 405, `"error":{"code":"method_not_allowed","message":"This endpoint`, ""},
		{"GET", "/v1/shout/secret", "", nil, 500, `"shout":"internal error`, "X-Should-Retry=false"},
		{"GET", "/v1/shout/conflict", "", nil, 409, `"shout":"Taken."`, "X-Should-Retry=false"},
		{"GET", "/v1/shout/busy", "", nil, 429, `"shout":"Later."`, "Retry-After=1"},
		{"GET", "/v1/shout/panic", "", nil, 500, `"shout":"internal error`, "X-Should-Retry=false"},
		{"POST", "/v1/shout/echo", strings.Repeat("x", 1000), nil, 200, "xxx", ""},
		{"POST", "/v1/shout/echo", strings.Repeat("x", 1001), nil, 413, `limit of 1000 bytes`, ""},
		{"GET", "/healthz", "", []string{"X-Api-Key", ""}, 200, `{"status":"ok"}`, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.method, tt.path, tt.status), func(t *testing.T) {
			res, body := s.do(t, tt.method, tt.path, tt.body, tt.header...)
			if res.StatusCode != tt.status || !strings.Contains(body, tt.contains) {
				t.Fatalf("%d %s", res.StatusCode, body)
			}
			if name, value, ok := strings.Cut(tt.with, "="); ok && res.Header.Get(name) != value {
				t.Fatalf("header %s is %q, want %q", name, res.Header.Get(name), value)
			}
			id := res.Header.Get("request-id")
			if !proto.ValidID(proto.RequestPrefix, id) {
				t.Fatalf("request ID %q", id)
			}
			if tt.status >= 400 && (!strings.Contains(body, id) || strings.Contains(body, "/var/lib")) {
				t.Fatalf("request ID %s is not in the body, or a host path is: %s", id, body)
			}
		})
	}
}

// A chunked body has no length to announce, so its limit is met while reading.
func TestBodyLimitWhileReading(t *testing.T) {
	s := newSite(t, failing())
	req, _ := http.NewRequest("POST", s.URL+"/v1/shout/echo", struct{ io.Reader }{
		strings.NewReader(strings.Repeat("x", 5000))})
	req.Header.Set("X-Api-Key", testKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 413 {
		t.Fatalf("status %d", res.StatusCode)
	}
}

func TestHalfAnAnswerIsCutOff(t *testing.T) {
	s := newSite(t, failing())
	req, _ := http.NewRequest("GET", s.URL+"/v1/shout/half", nil)
	req.Header.Set("X-Api-Key", testKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if data, err := io.ReadAll(res.Body); err == nil {
		t.Fatalf("a broken answer looked whole: %q", data)
	}
}

func TestTruncatedBody(t *testing.T) {
	s := newSite(t, failing())
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/shout/echo HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: 100\r\n\r\nshort",
		testKey)
	conn.(*net.TCPConn).CloseWrite()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != 400 || !strings.Contains(string(body), "ended early") {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
}

// A probe that fails has its line in the log.
func TestFailedProbeIsLogged(t *testing.T) {
	log := &logtest.Buffer{}
	server, err := New(Config{Auth: oneKey(testKey), Log: slog.New(slog.NewJSONHandler(log, nil)),
		Edges: []Edge{Ops(OpsConfig{Metrics: prometheus.NewRegistry(), Ready: func(context.Context) error {
			return proto.Errorf(proto.Unavailable, "", "", "not yet")
		}})}})
	if err != nil {
		t.Fatal(err)
	}
	got := httptest.NewRecorder()
	server.ServeHTTP(got, httptest.NewRequest("GET", "/healthz", nil))
	if got.Code != http.StatusServiceUnavailable || !strings.Contains(log.String(), `"status":503`) {
		t.Errorf("%d, logged: %s", got.Code, log)
	}
}

func TestOneLogLineAndMetricsPerRequest(t *testing.T) {
	s := newSite(t, failing())
	s.do(t, "GET", "/v1/shout/who?token=querysecret", "")
	s.do(t, "GET", "/v1/shout/secret", "", "X-Evil", "a")
	s.do(t, "GET", "/no/such%0apath", "")
	s.do(t, "GET", "/healthz", "") // a probe, as is the next one
	s.do(t, "GET", "/metrics", "")
	s.Close() // an answer may arrive before its line is written; Close waits for that
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %s", len(lines), s.log)
	}
	var first, second, third map[string]any
	for i, to := range []*map[string]any{&first, &second, &third} {
		if err := json.Unmarshal([]byte(lines[i]), to); err != nil {
			t.Fatal(err)
		}
	}
	if first["route"] != "GET /v1/shout/who" || first["status"] != 200.0 || first["owner"] != "default" ||
		first["request_id"] == "" || first["bytes"].(float64) < 10 || first["level"] != "INFO" {
		t.Errorf("line: %s", lines[0])
	}
	if second["level"] != "ERROR" || !strings.Contains(second["err"].(string), "no such file") {
		t.Errorf("line: %s", lines[1])
	}
	if third["route"] != "none" {
		t.Errorf("line: %s", lines[2])
	}
	for _, secret := range []string{testKey, "querysecret", "such"} {
		if strings.Contains(strings.ReplaceAll(s.log.String(), "no such", ""), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	scraped := httptest.NewRecorder()
	s.server.ServeHTTP(scraped, httptest.NewRequest("GET", "/metrics", nil))
	metrics := scraped.Body.String()
	for _, want := range []string{`berth_http_requests_total{route="GET /v1/shout/who",status="200"} 1`,
		`berth_http_requests_total{route="none",status="404"} 1`,
		`berth_http_request_seconds_count{route="GET /v1/shout/secret",status="500"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in metrics", want)
		}
	}
}

func TestConflictingRoutesAreAnError(t *testing.T) {
	e := failing()
	if _, err := New(Config{Edges: []Edge{e, e}}); err == nil {
		t.Fatal("no error")
	}
}

// Shutdown lets a request end, tells a stream to, and returns when both have.
func TestShutdown(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	e := Edge{Dialect: Plain, Routes: []Route{
		{Method: "GET", Pattern: "/slow", Where: None,
			Handle: func(w http.ResponseWriter, _ *http.Request, _ Caller) error {
				close(entered)
				<-release
				_, err := io.WriteString(w, "done")
				return err
			}},
		{Method: "GET", Pattern: "/stream", Where: None,
			Handle: func(w http.ResponseWriter, r *http.Request, _ Caller) error {
				es := NewEventStream(w, r)
				defer es.Close()
				if err := es.Send("hello", 1); err != nil {
					return err
				}
				<-es.Context().Done()
				return nil
			}},
	}}
	s, err := New(Config{Auth: oneKey(testKey), Edges: []Edge{e}})
	if err != nil {
		t.Fatal(err)
	}
	addr, stop, served := serving(t, s)
	get := func(path string) *http.Response {
		req, _ := http.NewRequest("GET", "http://"+addr+path, nil)
		req.Header.Set("X-Api-Key", testKey)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return nil
		}
		return res
	}
	stream := get("/stream")
	slow := make(chan *http.Response)
	go func() { slow <- get("/slow") }()
	<-entered
	stop()
	if data, err := io.ReadAll(stream.Body); err != nil || string(data) != "event: hello\ndata: 1\n\n" {
		t.Fatalf("stream: %q, %v", data, err)
	}
	select {
	case err := <-served:
		t.Fatalf("Serve returned before the request ended: %v", err)
	default:
	}
	close(release)
	if data, err := io.ReadAll((<-slow).Body); err != nil || string(data) != "done" {
		t.Fatalf("%q, %v", data, err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}

// Who is still there when the grace is over is told that the daemon goes; an answer under way is cut off, so that it
// does not pass for a whole one.
func TestShutdownCutsOff(t *testing.T) {
	entered := make(chan struct{}, 2)
	wait := func(w http.ResponseWriter, r *http.Request, _ Caller) error {
		entered <- struct{}{}
		<-r.Context().Done()
		return r.Context().Err()
	}
	log := &logtest.Buffer{}
	s, err := New(Config{
		Auth: oneKey(testKey), Log: slog.New(slog.NewJSONHandler(log, nil)), Grace: 50 * time.Millisecond,
		Edges: []Edge{{Dialect: Plain, Routes: []Route{
			{Method: "POST", Pattern: "/wait", Where: None, Handle: wait},
			{Method: "GET", Pattern: "/half", Where: None,
				Handle: func(w http.ResponseWriter, r *http.Request, c Caller) error {
					io.WriteString(w, "half an answer")
					http.NewResponseController(w).Flush()
					return wait(w, r, c)
				}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	addr, stop, served := serving(t, s)
	type answer struct {
		res  *http.Response
		body string
		err  error
	}
	ask := func(method, path string) chan answer {
		got := make(chan answer, 1)
		go func() {
			req, _ := http.NewRequest(method, "http://"+addr+path, nil)
			req.Header.Set("X-Api-Key", testKey)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				got <- answer{err: err}
				return
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			got <- answer{res, string(body), err}
		}()
		<-entered
		return got
	}
	waiting, half := ask("POST", "/wait"), ask("GET", "/half")
	stop()
	if a := <-waiting; a.err != nil || a.res.StatusCode != 503 || a.res.Header.Get("Retry-After") == "" ||
		!strings.Contains(a.body, "shutting down") {
		t.Errorf("%+v", a)
	}
	if a := <-half; !errors.Is(a.err, io.ErrUnexpectedEOF) || a.body != "half an answer" {
		t.Errorf("half an answer: %+v", a)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "client went away") || strings.Contains(log.String(), "canceled") {
		t.Errorf("the client is blamed: %s", log)
	}
}

// TestPagesOfAnOriginMayReadAnswers checks both questions that a browser asks before a page of another origin may use
// the API: the preflight, which has no API key, and the header of the answer.
func TestPagesOfAnOriginMayReadAnswers(t *testing.T) {
	const page = testOrigin
	s := newSite(t, failing())
	preflight := []string{"X-Api-Key", "", "Origin", page, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "content-type,x-api-key"}
	res, body := s.do(t, "OPTIONS", "/v1/shout/echo", "", preflight...)
	for name, want := range map[string]string{"Access-Control-Allow-Origin": page, "Access-Control-Allow-Methods": "POST",
		"Access-Control-Allow-Headers": "content-type,x-api-key", "Vary": "Origin"} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if res.StatusCode != 204 || body != "" {
		t.Errorf("the preflight is answered %d %q", res.StatusCode, body)
	}

	private := append([]string{"Access-Control-Request-Private-Network", "true"}, preflight...)
	res, _ = s.do(t, "OPTIONS", "/v1/shout/echo", "", private...)
	if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Private-Network") != "true" {
		t.Errorf("the preflight for a private network is answered %d with %v", res.StatusCode, res.Header)
	}
	for _, origin := range []string{"", "https://other.example.org"} {
		res, _ := s.do(t, "GET", "/v1/shout/who", "", "Origin", origin)
		if res.Header.Get("Vary") != "Origin" || res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("the answer for origin %q, which a cache may keep, has %v", origin, res.Header)
		}
	}

	for status, header := range map[int][]string{200: {"Origin", page}, 401: {"Origin", page, "X-Api-Key", ""}} {
		res, _ := s.do(t, "GET", "/v1/shout/who", "", header...)
		if res.StatusCode != status || res.Header.Get("Access-Control-Allow-Origin") != page ||
			res.Header.Get("Access-Control-Allow-Credentials") != "true" ||
			!strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), "Request-Id") ||
			!strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), "Content-Type") ||
			strings.Contains(fmt.Sprint(res.Header), "*") {
			t.Errorf("%d with %v, want %d", res.StatusCode, res.Header, status)
		}
	}
	refusals := [][]string{{"OPTIONS", "/v1/nothing", page}, {"GET", "/v1/shout/who", "null"}}
	for _, like := range []string{"https://other.example.org", page + ".evil.example", "https://evil-app.example.org",
		"http://app.example.org", page + ":8443", page + "/", page + ", https://evil.example", "*", "https://*"} {
		refusals = append(refusals, []string{"OPTIONS", "/v1/shout/echo", like}, []string{"GET", "/v1/shout/who", like})
	}
	for _, refused := range refusals {
		preflight[3] = refused[2]
		res, _ := s.do(t, refused[0], refused[1], "", preflight...)
		if res.Header.Get("Access-Control-Allow-Methods") != "" || res.StatusCode == 204 ||
			refused[2] != page && res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%v: %d with %v", refused, res.StatusCode, res.Header)
		}
	}
}

// TestUnknownPathsForBrowsers checks that a person in a browser sees a page where no route is, and every other client
// and every route that exists answers in JSON.
func TestUnknownPathsForBrowsers(t *testing.T) {
	s := newSite(t, failing())
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
	for _, c := range []struct {
		method, path, accept string
		status               int
		media                string
	}{
		{"GET", "/", browser, 404, "text/html; charset=utf-8"},
		{"GET", "/v1/nothing", browser, 404, "text/html; charset=utf-8"},
		{"GET", "/v1//nothing", browser, 404, "text/html; charset=utf-8"},
		{"GET", "/v1/shout/echo", browser, 405, "text/html; charset=utf-8"},
		{"GET", "/v1/nothing", "", 404, "application/json"},
		{"GET", "/v1/nothing", "*/*", 404, "application/json"},
		{"GET", "/v1/nothing", "application/json, text/plain, */*", 404, "application/json"},
		{"GET", "/v1/nothing", "application/json, text/html", 404, "application/json"},
		{"GET", "/v1/nothing", "application/json, text/html;q=0.9", 404, "application/json"},
		{"GET", "/v1/nothing", "text/html;q=0", 404, "application/json"},
		{"GET", "/v1/nothing", "text/html;q=x", 404, "application/json"},
		{"POST", "/v1/nothing", browser, 404, "application/json"},
	} {
		res, body := s.do(t, c.method, c.path, "", "Accept", c.accept)
		if res.StatusCode != c.status || res.Header.Get("Content-Type") != c.media {
			t.Errorf("%+v: %d %s %s", c, res.StatusCode, res.Header.Get("Content-Type"), body)
		}
		if c.method == "GET" && !slices.Contains(res.Header.Values("Vary"), "Accept") {
			t.Errorf("%+v: a cache may give one form to a client of the other: %v", c, res.Header)
		}
		if c.media != "application/json" && !strings.HasPrefix(res.Header.Get("Content-Security-Policy"),
			"default-src 'none'") {
			t.Errorf("%+v: %v", c, res.Header)
		}
	}
	if res, body := s.do(t, "GET", "/v1/shout/who", "", "Accept", browser, "X-Api-Key", ""); res.StatusCode != 401 ||
		res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a route without a key: %d %s", res.StatusCode, body)
	}
}

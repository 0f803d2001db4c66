package console_test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"berth/proto"
	"berth/test/apitest"

	"github.com/gorilla/websocket"
)

// A browser sends requests as a browser does, with its cookies and with what it says of the page.
type browser struct {
	t       *testing.T
	at      string
	cookies []*http.Cookie
}

// page is what a browser sends for a page of the daemon.
func (b *browser) page() http.Header {
	return http.Header{"Origin": {b.at}, "Sec-Fetch-Site": {"same-origin"}}
}

func (b *browser) send(method, path, body string, header http.Header) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequest(method, b.at+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if header != nil {
		req.Header = header.Clone()
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, c := range b.cookies {
		req.AddCookie(c)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res, string(data)
}

// link asks for a link as `berth console` does, and returns its secret.
func (b *browser) link() string {
	b.t.Helper()
	res, body := b.send("POST", "/v1/console/links", "{}", http.Header{"X-Api-Key": {apitest.Key}})
	var link proto.ConsoleLink
	if err := json.Unmarshal([]byte(body), &link); err != nil || res.StatusCode != http.StatusCreated {
		b.t.Fatalf("%d %s", res.StatusCode, body)
	}
	_, secret, _ := strings.Cut(link.Path, "#login=")
	return secret
}

func (b *browser) login() {
	b.t.Helper()
	res, body := b.send("POST", "/v1/console/login", `{"secret":"`+b.link()+`"}`, b.page())
	if res.StatusCode != http.StatusOK {
		b.t.Fatalf("%d %s", res.StatusCode, body)
	}
	b.cookies = res.Cookies()
}

// status is the status of a request with the header of a page.
func (b *browser) status(method, path string, header http.Header) int {
	res, _ := b.send(method, path, "", header)
	return res.StatusCode
}

func newBrowser(t *testing.T) *browser {
	s := apitest.Serve(t, nil)
	return &browser{t: t, at: s.URL}
}

// A link is exchanged once for a cookie that no script reads and no foreign page sends. Logging out ends it.
func TestLogin(t *testing.T) {
	b := newBrowser(t)
	secret := b.link()
	body := `{"secret":"` + secret + `"}`
	for name, h := range map[string]http.Header{
		"no origin": nil, "another origin": {"Origin": {"http://evil.test"}},
		"another site":    {"Origin": {b.at}, "Sec-Fetch-Site": {"cross-site"}},
		"a sibling's":     {"Sec-Fetch-Site": {"same-site"}, "Origin": {b.at}},
		"an opaque place": {"Origin": {"null"}},
	} {
		if res, text := b.send("POST", "/v1/console/login", body, h); res.StatusCode != http.StatusForbidden {
			t.Errorf("%s logs in: %d %s", name, res.StatusCode, text)
		}
	}
	res, text := b.send("POST", "/v1/console/login", body, b.page())
	if res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	c := res.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.Value == secret {
		t.Errorf("the cookie is %s", c)
	}
	if res, text := b.send("POST", "/v1/console/login", body, b.page()); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the link is good twice: %d %s", res.StatusCode, text)
	}
	if _, text := b.send("GET", "/v1/console/login", "", b.page()); !strings.Contains(text, `"key_id":""`) {
		t.Errorf("before the login: %s", text)
	}
	b.cookies = res.Cookies()
	if _, text := b.send("GET", "/v1/console/login", "", b.page()); !strings.Contains(text, `"key_id":"key_`) {
		t.Errorf("logged in as %s", text)
	}
	if got := b.status("GET", "/v1/containers", b.page()); got != http.StatusOK {
		t.Errorf("with the cookie: %d", got)
	}
	if got := b.status("POST", "/v1/console/links", b.page()); got != http.StatusForbidden {
		t.Errorf("a browser makes links: %d", got)
	}
	if got := b.status("DELETE", "/v1/console/login", b.page()); got != http.StatusOK {
		t.Errorf("logging out: %d", got)
	}
	if got := b.status("GET", "/v1/containers", b.page()); got != http.StatusUnauthorized {
		t.Errorf("after logging out: %d", got)
	}
}

// The cookie counts for pages of the daemon alone, and for the edges of the console alone.
func TestForeignPages(t *testing.T) {
	b := newBrowser(t)
	b.login()
	evil := http.Header{"Origin": {"http://evil.test"}}
	for name, try := range map[string]struct {
		method, path string
		header       http.Header
		want         int
	}{
		"own page":                     {"POST", "/v1/containers", b.page(), 201},
		"own page without a site":      {"POST", "/v1/containers", http.Header{"Origin": {b.at}}, 201},
		"own page reads":               {"GET", "/v1/containers", http.Header{}, 200},
		"foreign page":                 {"POST", "/v1/containers", evil, 403},
		"foreign page reads":           {"GET", "/v1/containers", evil, 403},
		"another port of the host":     {"POST", "/v1/containers", http.Header{"Origin": {"http://127.0.0.1:1"}}, 403},
		"another site":                 {"GET", "/v1/containers", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		"same site":                    {"GET", "/v1/containers", http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
		"typed address":                {"GET", "/v1/containers", http.Header{"Sec-Fetch-Site": {"none"}}, 403},
		"form without an origin":       {"POST", "/v1/containers", http.Header{}, 403},
		"deletion without one":         {"DELETE", "/v1/containers/container_0000000000000000000000", http.Header{}, 403},
		"sandboxed page":               {"POST", "/v1/containers", http.Header{"Origin": {"null"}}, 403},
		"own origin and a foreign one": {"POST", "/v1/containers", http.Header{"Origin": {b.at, "http://evil.test"}}, 403},
	} {
		if got := b.status(try.method, try.path, try.header); got != try.want {
			t.Errorf("%s: %d, want %d", name, got, try.want)
		}
	}
	// A wrong key beside a good cookie is a wrong key.
	h := b.page()
	h.Set("X-Api-Key", "wrong")
	if got := b.status("GET", "/v1/containers", h); got != http.StatusUnauthorized {
		t.Errorf("a wrong key beside the cookie: %d", got)
	}
}

// A websocket of a foreign page does not open with the cookie, and one of the console ends when the browser logs out.
func TestWebsockets(t *testing.T) {
	b := newBrowser(t)
	b.login()
	res, body := b.send("POST", "/v1/containers", "", b.page())
	var made proto.Container
	if err := json.Unmarshal([]byte(body), &made); err != nil || res.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	dial := func(h http.Header) (*websocket.Conn, int) {
		h = h.Clone()
		h.Set("Cookie", b.cookies[0].Name+"="+b.cookies[0].Value)
		conn, res, _ := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(b.at, "http")+"/v1/containers/"+made.ID+
			"/live", h)
		return conn, res.StatusCode
	}
	for name, h := range map[string]http.Header{
		"foreign": {"Origin": {"http://evil.test"}}, "none": {}, "opaque": {"Origin": {"null"}},
		"site": {"Origin": {b.at}, "Sec-Fetch-Site": {"cross-site"}},
	} {
		if _, status := dial(h); status != http.StatusForbidden {
			t.Errorf("%s: %d", name, status)
		}
	}
	conn, status := dial(b.page())
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("own page: %d", status)
	}
	defer conn.Close()
	if got := b.status("DELETE", "/v1/console/login", b.page()); got != http.StatusOK {
		t.Fatalf("logging out: %d", got)
	}
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			if !websocket.IsCloseError(err, websocket.ClosePolicyViolation) {
				t.Errorf("it ended by %v", err)
			}
			break
		}
	}
}

// The page has a strict policy, all its files exist, and none has an inline script but the import map.
func TestPage(t *testing.T) {
	b := newBrowser(t)
	res, page := b.send("GET", "/console", "", nil)
	policy := res.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self' 'sha256-", "style-src 'self';",
		"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "connect-src 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy has no %s: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
		t.Errorf("the policy is %s", policy)
	}
	if res.Header.Get("X-Content-Type-Options") != "nosniff" || res.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the headers are %v", res.Header)
	}
	if regexp.MustCompile(`(?i)\son\w+=|style=|<style|https?://`).MatchString(page) {
		t.Errorf("the page has inline code, or an address elsewhere: %s", page)
	}
	files := regexp.MustCompile(`(?:src|href)="(/console/[^"]+)"`).FindAllStringSubmatch(page, -1)
	if !strings.Contains(page, "make console-libs") && len(files) < 10 {
		t.Errorf("the page has %d files", len(files))
	}
	for _, f := range files {
		if res, _ := b.send("GET", f[1], "", nil); res.StatusCode != 200 ||
			!strings.Contains(res.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", f[1], res.StatusCode, res.Header)
		}
	}
	res, _ = b.send("GET", "/console/preview", "", nil)
	if p := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "sandbox allow-scripts;") ||
		strings.Contains(p, "unsafe") || strings.Contains(p, "allow-same-origin") {
		t.Errorf("the frame has the policy %s", p)
	}
	if got := b.status("GET", "/console/0/web/style.css", nil); got != http.StatusNotFound {
		t.Errorf("a file of another version: %d", got)
	}
}

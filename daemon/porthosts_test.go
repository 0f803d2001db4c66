package daemon_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// host is the host name of a port of the application's container.
func (a *app) host(port string) string {
	_, tcp, _ := strings.Cut(strings.TrimPrefix(a.URL, "http://"), ":")
	return port + "-" + proto.HostID(a.id) + ".localhost:" + tcp
}

// visit makes a request to a host name without an API key, and returns the answer and its body.
func (a *app) visit(method, host, path string, header http.Header) (*http.Response, string) {
	a.t.Helper()
	req, err := http.NewRequest(method, a.URL+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Host = host
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := http.DefaultTransport.RoundTrip(req) // which follows no redirect
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, string(body)
}

// portHost checks the host name of a port: with a key it is the application's, and without one nobody's.
func portHost(t *testing.T, a *app) {
	key := http.Header{"X-Api-Key": {a.Key}}
	host := a.host("8000")
	_, text := a.visit("GET", host, "/a//b/../c%2Fd?q=1;2&x=%zz", key.Clone())
	for _, want := range []string{`"path": "/a//b/../c%2Fd?q=1;2&x=%zz"`, `["Host", "` + host + `"]`,
		`["X-Forwarded-Proto", "http"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, a.Key) || strings.Contains(text, "X-Forwarded-Prefix") {
		t.Errorf("the application gets %s", text)
	}
	res, _ := a.visit("GET", host, "/away", http.Header{"Authorization": {"Bearer " + a.Key}})
	if res.StatusCode != 302 || res.Header.Get("Location") != "/there" || res.Header.Get("Set-Cookie") != "a=b; Path=/x" ||
		res.Header.Get("Clear-Site-Data") != "" || res.Header.Get("Content-Security-Policy") != "" {
		t.Errorf("%d with %v", res.StatusCode, res.Header)
	}
	if list := a.ports(); len(list) == 0 || list[0].URL != "http://"+host {
		t.Errorf("listed as %+v", list)
	}
	for _, c := range []struct {
		host   string
		header http.Header
		status int
		want   string
	}{
		{host, nil, 401, `"error"`},
		{host, http.Header{"Accept": {"text/html,*/*"}}, 401, "<h1>Unauthorized</h1>"},
		{host, http.Header{"X-Api-Key": {"sk_wrong"}}, 401, `"error"`},
		{host, http.Header{"Authorization": {"Bearer theirs"}}, 401, `"error"`},
		{a.host("3128"), key.Clone(), 403, "belongs to berth"},
		{a.host("3129"), key.Clone(), 403, "belongs to berth"},
		{a.host("8001"), key.Clone(), 502, "Nothing listens"},
		{a.host("0"), key.Clone(), 400, "is not a port"},
		{a.host("x"), key.Clone(), 400, "is not a port"},
		{"nothing.localhost", key.Clone(), 400, "is no port of a container"},
		{"8000-" + proto.HostID(proto.NewID(proto.ContainerPrefix)) + ".localhost", key.Clone(), 404, "container_"},
	} {
		res, text := a.visit("GET", c.host, "/v1/containers", c.header)
		if res.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %v: %d %s", c.host, c.header, res.StatusCode, text)
		}
	}
}

// sign returns a signed URL of a port, on behalf of a key.
func (a *app) sign(port, key string) *url.URL {
	a.t.Helper()
	b := *a.server.Daemon
	b.Key = key
	made := call[proto.PortURL](a.t, &server{&b}, 201, "POST", "/v1/containers/"+a.id+"/ports/"+port+"/url",
		`{"expires_in_seconds":600}`)
	u, err := url.Parse(made.URL)
	if err != nil || u.Host != a.host(port) || u.RawQuery == "" {
		a.t.Fatalf("the URL is %q, %v", made.URL, err)
	}
	return u
}

// portSigned checks that a signed URL opens its port without an API key, and no other one, until its key is revoked.
func portSigned(t *testing.T, a *app) {
	made := call[proto.NewKey](t, a.server, 201, "POST", "/v1/keys", `{"name":"signer"}`)
	u := a.sign("8000", made.Secret)
	host, token := u.Host, u.Query().Get("berth_token")
	res, text := a.visit("GET", host, "//evil.test/p?a=1&berth_token="+token+"&b=%zz", nil)
	if got := res.Header.Get("Location"); res.StatusCode != 303 || got != "http://"+host+"//evil.test/p?a=1&b=%zz" {
		t.Fatalf("%d to %q: %s", res.StatusCode, got, text)
	}
	set := res.Cookies()
	if len(set) != 1 || set[0].Value != token || !set[0].HttpOnly || set[0].SameSite != http.SameSiteLaxMode ||
		set[0].Domain != "" || set[0].Path != "/" || set[0].MaxAge < 60 || set[0].MaxAge > 600 {
		t.Fatalf("the cookies are %v", res.Header["Set-Cookie"])
	}
	cookie := set[0].Name + "=" + token
	with := func(more ...string) http.Header {
		h := http.Header{"Cookie": {"mine=1; " + cookie + "; also=2"}, "Authorization": {"Basic eDp5"},
			"Referer": {"http://" + host + "/?berth_token=" + token}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	res, text = a.visit("GET", host, "/p?a=1", with())
	var got struct {
		Path    string
		Headers [][2]string
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || res.StatusCode != 200 || got.Path != "/p?a=1" {
		t.Fatalf("%d %v %s", res.StatusCode, err, text)
	}
	if strings.Contains(text, token) || !strings.Contains(text, `["Cookie", "mine=1; also=2"]`) ||
		!strings.Contains(text, "Basic eDp5") {
		t.Errorf("the application gets %s", text)
	}
	if res, text = a.visit("POST", host, "/p?berth_token="+token, nil); res.StatusCode != 200 ||
		strings.Contains(text, token) {
		t.Errorf("a form with the token: %d %s", res.StatusCode, text)
	}
	portSocketByCookie(t, a, host, cookie, token)
	for _, c := range []struct {
		host, path string
		header     http.Header
		status     int
	}{
		{a.host("8001"), "/", with(), 401},
		{a.host("8001"), "/?berth_token=" + token, nil, 401},
		{a.host("3128"), "/?berth_token=" + token, nil, 403},
		{host, "/?berth_token=" + token[1:], nil, 401},
		{host, "/", with("Origin", "http://evil.test"), 403},
		{host, "/", with("Sec-Fetch-Site", "same-site"), 200}, // the referrer is of this container
		{host, "/", with("Sec-Fetch-Site", "same-site", "Referer", "http://evil.test"), 403},
		{host, "/", with("Origin", "http://evil.test", "X-Api-Key", a.Key), 200},
	} {
		if res, text := a.visit("GET", c.host, c.path, c.header); res.StatusCode != c.status {
			t.Errorf("%s%s %v: %d %s", c.host, c.path, c.header, res.StatusCode, text)
		}
	}
	for body, want := range map[string]int{`{"expires_in_seconds":-1}`: 400, `{"expires_in_seconds":604801}`: 400,
		`{"x":1}`: 400, ``: 201, `{}`: 201} {
		if status, out, err := a.Do("POST", "/v1/containers/"+a.id+"/ports/8000/url", strings.NewReader(body)); err != nil ||
			status != want {
			t.Errorf("%s: %d %s, %v", body, status, out, err)
		}
	}
	call[proto.Key](t, a.server, 200, "DELETE", "/v1/keys/"+made.ID, "")
	if res, text := a.visit("GET", host, "/", with()); res.StatusCode != 401 || !strings.Contains(text, "revoked") {
		t.Errorf("after its key was revoked: %d %s", res.StatusCode, text)
	}
}

// portSocketByCookie checks that the page's own websockets go through, and no foreign page's.
func portSocketByCookie(t *testing.T, a *app, host, cookie, token string) {
	at := "ws" + strings.TrimPrefix(a.URL, "http") + "/ws"
	for _, c := range []struct {
		url, origin, cookie string
		ok                  bool
	}{
		{at, "http://" + host, cookie, true},
		{at, "http://" + a.host("3000"), cookie, true},
		{at, "http://evil.test", cookie, false},
		{at, "http://" + host, "", false},
		{at + "?berth_token=" + token, "", "", true},
	} {
		header := http.Header{"Host": {host}, "Cookie": {c.cookie}}
		if c.origin != "" {
			header.Set("Origin", c.origin)
		}
		conn, _, err := websocket.DefaultDialer.Dial(c.url, header)
		if (err == nil) != c.ok {
			t.Errorf("from %s with %q: %v", c.origin, c.cookie, err)
		}
		if err != nil {
			continue
		}
		defer conn.Close()
		_ = conn.WriteMessage(websocket.TextMessage, []byte("hello"))
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != "hello" {
			t.Errorf("%q came back, %v", got, err)
		}
	}
}

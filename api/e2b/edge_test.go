package e2b_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/api/e2b"
	"berth/api/e2b/access"
	"berth/api/ports"
	"berth/api/ports/address"
	"berth/code"
	"berth/events"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
	"berth/state/audit"
	"berth/test/sessiontest"
)

// A site is the edge over the real core. Its containers are the real guest without isolation.
type site struct {
	*sessiontest.Stack
	server *httptest.Server
	edge   *e2b.Edge
	log    *bytes.Buffer
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteWith(t, proto.PortsSigned)
}

// newSiteWith returns a site with a bound of the access to ports. Its ports are below the domain a.test.
func newSiteWith(t *testing.T, most proto.PortAccess) *site {
	t.Helper()
	var log *audit.Log
	st := &site{log: &bytes.Buffer{}, Stack: sessiontest.New(t, session.Config{PortsMax: most,
		Audit: func(e proto.AuditEntry) { log.Append(e) }})}
	var err error
	log, err = audit.Open(audit.Config{Dir: t.TempDir(), Ledger: st.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	runner := code.Open(code.Config{Sessions: st.Sessions})
	t.Cleanup(func() { _ = runner.Close() })
	domain := address.Domain{Scheme: "http", Name: "a.test"}
	apps := ports.New(ports.Config{Sessions: st.Sessions, Ports: inbound.New(), Max: most, Knows: st.Keys.Knows,
		Life: st.Keys.Life, Domain: domain, Clean: e2b.CleanHeaders})
	st.edge = e2b.New(e2b.Config{Sessions: st.Sessions, Code: runner, Images: st.Images, Keys: st.Keys,
		Events: events.New(log), PortsMax: most, Domain: domain, Apps: apps, Sudo: true})
	t.Cleanup(func() { _ = st.edge.Close() })
	server, err := api.New(api.Config{Auth: st.Keys, Audit: log, Edges: []api.Edge{st.edge.Control()},
		Raws: []api.Raw{st.edge.Match, apps.Match},
		Log:  slog.New(slog.NewTextHandler(st.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	st.server = httptest.NewServer(server)
	t.Cleanup(st.server.Close)
	return st
}

// A client has an API key, in the spelling of E2B's clients.
type client struct {
	*site
	key string
}

func (st *site) client(t *testing.T, owner string) client {
	t.Helper()
	k, err := st.Keys.Create(proto.Caller{Owner: "admin"}, proto.CreateKey{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return client{st, access.SpellKey(k.Secret)}
}

// An answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request with a JSON body; "" is none. Headers are pairs of name and value.
func (c client) send(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, c.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", c.key)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
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
	return answer{res.StatusCode, res.Header, string(data)}
}

// A box is what tests read of a sandbox.
type box struct {
	TemplateID, SandboxID, ClientID, EnvdVersion, EnvdAccessToken, State, PauseMode string

	EndAt    time.Time
	Metadata map[string]string
	Code     int
	Message  string
}

// want checks the status of an answer and decodes its body into a T.
func want[T any](t *testing.T, a answer, status int) (v T) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if a.body != "" {
		if err := json.Unmarshal([]byte(a.body), &v); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
	}
	return v
}

func (c client) create(t *testing.T, body string) box {
	t.Helper()
	return want[box](t, c.send(t, "POST", "/v2/sandboxes", body), http.StatusCreated)
}

func (c client) get(t *testing.T, id string) box {
	t.Helper()
	return want[box](t, c.send(t, "GET", "/sandboxes/"+id, ""), http.StatusOK)
}

// in returns how far a lease ends from now.
func (b box) in() time.Duration { return time.Until(b.EndAt) }

func TestLifeOfASandbox(t *testing.T) {
	c := newSite(t).client(t, "ann")
	made := c.create(t, `{"templateID":"base","timeout":600,"metadata":{"a":"b c"},"new_field":{"x":1}}`)
	if made.TemplateID != "base" || made.ClientID == "" || made.EnvdVersion == "" || made.EnvdAccessToken == "" {
		t.Errorf("made %+v", made)
	}
	if strings.ToLower(made.SandboxID) != made.SandboxID || strings.ContainsAny(made.SandboxID, "-_") {
		t.Errorf("the ID %q cannot stand in a host name", made.SandboxID)
	}
	one := "/sandboxes/" + made.SandboxID
	info := c.get(t, made.SandboxID)
	if info.State != "running" || info.Metadata["a"] != "b c" || len(info.Metadata) != 1 || info.in() < 9*time.Minute ||
		info.EnvdAccessToken != made.EnvdAccessToken {
		t.Errorf("it is %+v", info)
	}
	if old := c.get(t, made.SandboxID+"-"+made.ClientID); old.SandboxID != made.SandboxID {
		t.Errorf("with the client's ID behind it, it is %+v", old)
	}
	// Set the timeout in both directions; connecting extends only.
	want[any](t, c.send(t, "POST", one+"/timeout", `{"timeout":60}`), http.StatusNoContent)
	if info = c.get(t, made.SandboxID); info.in() > time.Minute {
		t.Errorf("its lease ends in %s", info.in())
	}
	want[box](t, c.send(t, "POST", one+"/connect", `{"timeout":1}`), http.StatusOK)
	if again := c.get(t, made.SandboxID); !again.EndAt.Equal(info.EndAt) {
		t.Errorf("connecting moved the end from %s to %s", info.EndAt, again.EndAt)
	}
	want[box](t, c.send(t, "POST", "/v2"+one+"/connect", ""), http.StatusOK)
	if info = c.get(t, made.SandboxID); info.in() < 4*time.Minute {
		t.Errorf("after connecting for 300 seconds, its lease ends in %s", info.in())
	}
	want[any](t, c.send(t, "DELETE", one, ""), http.StatusNoContent)
	for _, method := range []string{"DELETE", "GET"} {
		if gone := want[box](t, c.send(t, method, one, ""), http.StatusNotFound); gone.Code != 404 || gone.Message == "" {
			t.Errorf("%s of one that is gone: %+v", method, gone)
		}
	}
}

func TestLeaseEndsNow(t *testing.T) {
	c := newSite(t).client(t, "ann")
	killed := c.create(t, `{"templateID":"base"}`)
	want[any](t, c.send(t, "POST", "/sandboxes/"+killed.SandboxID+"/timeout", `{"timeout":-5}`), http.StatusNoContent)
	want[box](t, c.send(t, "GET", "/sandboxes/"+killed.SandboxID, ""), http.StatusNotFound)
}

func TestListsOfSandboxes(t *testing.T) {
	st := newSite(t)
	c, other := st.client(t, "ann"), st.client(t, "bob")
	other.create(t, `{"templateID":"base","metadata":{"n":"1"}}`)
	var ids []string
	for _, n := range []string{"1", "2", "2"} {
		ids = append([]string{c.create(t, `{"templateID":"base","metadata":{"n":"`+n+`","k ey":"ä&="}}`).SandboxID}, ids...)
	}
	names := func(a answer) (list []string) {
		for _, b := range want[[]box](t, a, http.StatusOK) {
			list = append(list, b.SandboxID)
		}
		return list
	}
	twice := url.Values{"metadata": {url.Values{"n": {"2"}, url.PathEscape("k ey"): {url.PathEscape("ä&=")}}.Encode()}}
	for _, l := range []struct {
		query string
		want  []string
	}{
		{"", ids}, {"?order=asc", []string{ids[2], ids[1], ids[0]}}, {"?" + twice.Encode(), ids[:2]},
		{"?metadata=n%3D1", ids[2:]}, {"?state=paused", nil}, {"?state=running,paused", ids}, {"?template=none", nil},
		{"?startedAfter=2099-01-01T00:00:00Z", nil}, {"?template=base&startedAfter=2020-01-01T00:00:00%2B01:00", ids},
	} {
		if got := names(c.send(t, "GET", "/v2/sandboxes"+l.query, "")); strings.Join(got, " ") != strings.Join(l.want, " ") {
			t.Errorf("%q lists %v, want %v", l.query, got, l.want)
		}
	}
	first := c.send(t, "GET", "/v2/sandboxes?limit=2", "")
	next := first.header.Get("X-Next-Token")
	if got := names(first); len(got) != 2 || next == "" || first.header.Get("X-Total-Running") != "3" {
		t.Fatalf("the first page is %v, %v", got, first.header)
	}
	c.create(t, `{"templateID":"base"}`) // must not move the pages
	last := c.send(t, "GET", "/v2/sandboxes?limit=2&nextToken="+next, "")
	if got := names(last); len(got) != 1 || got[0] != ids[2] || last.header.Get("X-Next-Token") != "" {
		t.Errorf("the last page is %v, %v", got, last.header)
	}
	for _, wrong := range []string{"?nextToken=x", "?limit=0", "?limit=101", "?state=dead", "?template=a:b", "?order=up",
		"?startedAfter=now", "?metadata=a%253Dx%25"} {
		want[box](t, c.send(t, "GET", "/v2/sandboxes"+wrong, ""), http.StatusBadRequest)
	}
}

func TestRefusedSandboxes(t *testing.T) {
	st := newSite(t)
	c, other := st.client(t, "ann"), st.client(t, "bob")
	for _, r := range []struct {
		body   string
		status int
		says   string
	}{
		{`{}`, 400, "templateID"}, {`{"templateID":"nonsuch"}`, 404, "berth image"}, {`[`, 400, "JSON"},
		{`{"templateID":"base","timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{`{"templateID":"base","timeout":"1"}`, 400, "timeout"},
		{`{"templateID":"base","autoPauseMemory":false}`, 400, "autoPauseMemory=false only applies when autoPause is true."},
		{`{"templateID":"base","network":{"allowOut":["10.0.0.0/8"]}}`, 400, "network.allowOut"},
		{`{"templateID":"base","network":{"denyOut":["10.0.0.1"]}}`, 400, "network.denyOut"},
		{`{"templateID":"base","network":{"dnsServers":["1.1.1.1"]}}`, 400, "network.dnsServers"},
		{`{"templateID":"base","network":{"rules":{"a.b":[]}}}`, 400, "network.rules"},
		{`{"templateID":"base","network":{"egressProxy":{"address":"x"}}}`, 400, "network.egressProxy"},
		{`{"templateID":"base","network":{"maskRequestHost":"x"}}`, 400, "network.maskRequestHost"},
		{`{"templateID":"base","network":{"allowPublicTraffic":true}}`, 400, "--ports-max public"},
		{`{"templateID":"base","mcp":{"x":{}}}`, 400, "mcp"}, {`{"templateID":"base","iam":{"x":1}}`, 400, "iam"},
		{`{"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]}`, 400, "volumeMounts"},
		{`{"templateID":"base","metadata":{"berth.e2b":"x"}}`, 400, "reserved"},
	} {
		got := want[box](t, c.send(t, "POST", "/v2/sandboxes", r.body), r.status)
		if got.Code != r.status || !strings.Contains(got.Message, r.says) {
			t.Errorf("%s: %+v, want %q", r.body, got, r.says)
		}
	}
	if refused := c.send(t, "POST", "/v2/sandboxes", `{}`); refused.header.Get("Should-Retry") != "false" {
		t.Errorf("Should-Retry is %q", refused.header.Get("Should-Retry"))
	}
	hers := "/sandboxes/" + c.create(t, `{"templateID":"base","network":{"rules":{},"denyOut":["0.0.0.0/0"]}}`).SandboxID
	for _, r := range [][2]string{{"GET", hers}, {"DELETE", hers}, {"POST", hers + "/connect"}, {"POST", hers + "/timeout"},
		{"POST", hers + "/resume"}, {"POST", "/v2" + hers + "/connect"}, {"POST", hers + "/refreshes"}} {
		want[box](t, other.send(t, r[0], r[1], `{"timeout":60}`), http.StatusNotFound)
	}
	for _, r := range [][2]string{{"POST", "/v3/templates"}, {"GET", "/volumes"}, {"POST", "/secrets"}} {
		if got := want[box](t, c.send(t, r[0], r[1], ""), http.StatusNotImplemented); got.Message == "" {
			t.Errorf("%v: %+v", r, got)
		}
	}
	stranger := client{st, "e2b_00"}
	want[box](t, stranger.send(t, "POST", "/v2/sandboxes", `{"templateID":"base"}`), http.StatusUnauthorized)
	want[any](t, stranger.send(t, "GET", "/health", ""), http.StatusNoContent)
	if key := access.Key(c.key); strings.Contains(st.log.String(), key) || strings.Contains(st.log.String(), c.key) {
		t.Error("the log has the API key")
	}
}

func TestCreateOnce(t *testing.T) {
	c := newSite(t).client(t, "ann")
	const body = `{"templateID":"base","timeout":60}`
	first := want[box](t, c.send(t, "POST", "/v2/sandboxes", body, "Idempotency-Key", "k-1"), http.StatusCreated)
	again := want[box](t, c.send(t, "POST", "/v2/sandboxes", body, "Idempotency-Key", "k-1"), http.StatusCreated)
	if first.SandboxID != again.SandboxID {
		t.Errorf("one key made %s and %s", first.SandboxID, again.SandboxID)
	}
	other := c.send(t, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":61}`, "Idempotency-Key", "k-1")
	if want[any](t, other, http.StatusConflict); !strings.Contains(other.body, "idempotency_request_mismatch") {
		t.Errorf("another request with that key: %s", other.body)
	}
}

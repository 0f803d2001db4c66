package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"
	"berth/test/oauthtest"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// request makes a request with a token; "" is none.
func request(d *daemontest.Daemon, method, path, token, body string) (*http.Response, error) {
	req, err := http.NewRequest(method, d.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if path == "/v1/events" {
		req.Header.Set("Accept", "text/event-stream")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return http.DefaultClient.Do(req)
}

// with makes a request and returns the answer and its body.
func with(t *testing.T, d *daemontest.Daemon, method, path, token, body string) (*http.Response, string) {
	t.Helper()
	res, err := request(d, method, path, token, body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// TestAccessTokens checks who a token stands for, and what it may do.
func TestAccessTokens(t *testing.T) {
	as := oauthtest.New(t)
	const resource = "https://berth.test"
	d := bare(t, "--oauth-issuer", as.URL, "--oauth-resource", resource, "--oauth-scope", "containers")
	token := as.Token(map[string]any{"aud": resource})
	if res, text := with(t, d, "GET", "/v1/containers", token, ""); res.StatusCode != 403 ||
		!strings.Contains(text, "oauth:alice") || strings.Contains(res.Header.Get("WWW-Authenticate"), "scope") {
		t.Errorf("without a key for the subject: %d %s", res.StatusCode, text)
	}
	s := &server{d}
	made := call[proto.NewKey](t, s, 201, "POST", "/v1/keys", `{"owner":"team-a","name":"oauth:alice","admin":true}`)
	call[proto.NewKey](t, s, 201, "POST", "/v1/keys", `{"owner":"team-b","name":"oauth:bob"}`)
	if res, text := with(t, d, "GET", "/v1/info", token, ""); res.StatusCode != 200 {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	if res, text := with(t, d, "POST", "/v1/keys", token, `{}`); res.StatusCode != 403 {
		t.Errorf("a token administers: %d %s", res.StatusCode, text)
	}
	upload := func(token string) (*http.Response, string) {
		return with(t, d, "POST", "/v1/webhooks", token, `{"url":"https://hooks.test/x"}`)
	}
	res, text := upload(token)
	var hook struct{ ID string }
	if json.Unmarshal([]byte(text), &hook); res.StatusCode/100 != 2 || hook.ID == "" {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	bob := as.Token(map[string]any{"aud": resource, "sub": "bob"})
	for who, c := range map[string]struct {
		token  string
		status int
	}{"its owner": {token, 200}, "another owner": {bob, 404}} {
		if res, text := with(t, d, "GET", "/v1/webhooks/"+hook.ID, c.token, ""); res.StatusCode != c.status {
			t.Errorf("%s: %d %s", who, res.StatusCode, text)
		}
	}
	for name, claims := range map[string]map[string]any{"audience": {"aud": "https://other.test"},
		"issuer": {"aud": resource, "iss": "https://evil.test"}, "expired": {"aud": resource, "exp": time.Now().Unix() - 60}} {
		res, text := with(t, d, "GET", "/v1/containers", as.Token(claims), "")
		want := `Bearer resource_metadata="` + resource + `/.well-known/oauth-protected-resource", scope="containers"`
		if res.StatusCode != 401 || res.Header.Get("WWW-Authenticate") != want {
			t.Errorf("%s: %d %v %s", name, res.StatusCode, res.Header, text)
		}
	}
	res, _ = with(t, d, "POST", "/mcp", as.Token(map[string]any{"aud": resource, "scope": "x"}), `{}`)
	if got := res.Header.Get("WWW-Authenticate"); res.StatusCode != 403 || !strings.Contains(got,
		`oauth-protected-resource/mcp", error="insufficient_scope", scope="containers"`) {
		t.Errorf("without the scope: %d %s", res.StatusCode, got)
	}
	// What is open with a token ends when it expires.
	short := as.Token(map[string]any{"aud": resource, "exp": time.Now().Unix() - 27}) // clocks may differ by 30 seconds
	begin := time.Now()
	stream, err := request(d, "GET", "/v1/events", short, "")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	_, err = io.Copy(io.Discard, stream.Body)
	took := time.Since(begin)
	if stream.StatusCode != 200 || err == nil || took < time.Second || took > 20*time.Second {
		t.Errorf("a stream with a token of 2 s: %d, %v after %s", stream.StatusCode, err, took)
	}
	call[proto.Key](t, s, 200, "DELETE", "/v1/keys/"+made.ID, "")
	if res, text := with(t, d, "GET", "/v1/containers", token, ""); res.StatusCode != 403 {
		t.Errorf("after the subject's key was revoked: %d %s", res.StatusCode, text)
	}
	if status, text, err := d.Do("GET", "/v1/audit", nil); err != nil || status != 200 ||
		!strings.Contains(string(text), made.ID) {
		t.Errorf("the audit log does not name the subject's key: %d %s", status, text)
	}
}

// TestProtectedResourceMetadata checks the documents, and an official client that finds everything by itself.
func TestProtectedResourceMetadata(t *testing.T) {
	if res, _ := with(t, base.Daemon, "GET", "/.well-known/oauth-protected-resource", "", ""); res.StatusCode != 404 {
		t.Errorf("without an issuer: %d", res.StatusCode)
	}
	as := oauthtest.New(t)
	front := httptest.NewUnstartedServer(nil) // only for a port that is free
	address := front.Listener.Addr().String()
	front.Listener.Close()
	resource := "http://" + address
	d := bare(t, "--listen", address, "--oauth-issuer", as.URL, "--oauth-resource", resource, "--oauth-scope", "containers")
	s := &server{d}
	call[proto.NewKey](t, s, 201, "POST", "/v1/keys", `{"owner":"team-a","name":"oauth:alice"}`)
	for _, path := range []string{"", "/mcp"} {
		meta, err := oauthex.GetProtectedResourceMetadata(t.Context(), resource+"/.well-known/oauth-protected-resource"+path,
			resource+path, http.DefaultClient)
		if err != nil || len(meta.AuthorizationServers) != 1 || meta.AuthorizationServers[0] != as.URL ||
			fmt.Sprint(meta.ScopesSupported) != "[containers]" {
			t.Errorf("%s: %+v, %v", path, meta, err)
		}
	}
	fetch := func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		res, err := client.Get(args.URL)
		if err != nil {
			return nil, err
		}
		res.Body.Close()
		to, err := res.Location()
		if err != nil {
			return nil, errors.Join(err, errors.New(res.Status))
		}
		return &auth.AuthorizationResult{Code: to.Query().Get("code"), State: to.Query().Get("state")}, nil
	}
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "test", RedirectURIs: []string{"http://localhost:1/callback"}}},
		RedirectURL: "http://localhost:1/callback", AuthorizationCodeFetcher: fetch})
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: resource + "/mcp",
		OAuthHandler: handler}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) == 0 || as.Tokens() != 1 {
		t.Errorf("%d tools after %d tokens, %v", len(list.Tools), as.Tokens(), err)
	}
}

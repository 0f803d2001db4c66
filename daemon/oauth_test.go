package daemon_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// An authServer is an OAuth authorization server: it registers clients, gives codes to whoever asks, as a person who
// always consents, and gives tokens for the resource that was asked for.
type authServer struct {
	*httptest.Server
	t       *testing.T
	key     *ecdsa.PrivateKey
	subject string
	scope   string
	codes   map[string]url.Values
	tokens  int
}

func newAuthServer(t *testing.T) *authServer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &authServer{t: t, key: key, subject: "alice", scope: "containers", codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize",
			"token_endpoint": s.URL + "/token", "registration_endpoint": s.URL + "/register", "jwks_uri": s.URL + "/keys",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{"none"}, "grant_types_supported": []string{"authorization_code"},
			"scopes_supported": []string{"containers"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Use: "sig"}}})
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		json.NewDecoder(r.Body).Decode(&asked)
		asked["client_id"], asked["token_endpoint_auth_method"] = "client-1", "none"
		answer(w, 201, asked)
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		s.codes["code-1"] = q
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"code-1"}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		q := s.codes[r.Form.Get("code")]
		if q == nil || oauth2.S256ChallengeFromVerifier(r.Form.Get("code_verifier")) != q.Get("code_challenge") {
			answer(w, 400, map[string]any{"error": "invalid_grant"})
			return
		}
		s.tokens++
		answer(w, 200, map[string]any{"token_type": "Bearer", "expires_in": 300, "scope": s.scope,
			"access_token": s.token(map[string]any{"aud": q.Get("resource")})})
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// token signs a token with some claims of its own.
func (s *authServer) token(changes map[string]any) string {
	now := time.Now().Unix()
	claims := map[string]any{"iss": s.URL, "sub": s.subject, "iat": now, "exp": now + 300, "scope": s.scope,
		"client_id": "client-1", "jti": "1"}
	for name, value := range changes {
		claims[name] = value
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: s.key},
		(&jose.SignerOptions{}).WithType("at+jwt").WithHeader("kid", "k"))
	if err == nil {
		var text string
		if text, err = jwt.Signed(signer).Claims(claims).Serialize(); err == nil {
			return text
		}
	}
	s.t.Error(err)
	return ""
}

// with makes a request with a token and returns the answer and its body.
func with(t *testing.T, d *daemontest.Daemon, method, path, token, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, d.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
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
	res, err := http.DefaultClient.Do(req)
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
	as := newAuthServer(t)
	const resource = "https://berth.test"
	d := bare(t, "--oauth-issuer", as.URL, "--oauth-resource", resource, "--oauth-scope", "containers")
	token := as.token(map[string]any{"aud": resource})
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
	bob := as.token(map[string]any{"aud": resource, "sub": "bob"})
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
		res, text := with(t, d, "GET", "/v1/containers", as.token(claims), "")
		if want := `Bearer resource_metadata="` + resource + `/.well-known/oauth-protected-resource", scope="containers"`; res.StatusCode != 401 ||
			res.Header.Get("WWW-Authenticate") != want {
			t.Errorf("%s: %d %v %s", name, res.StatusCode, res.Header, text)
		}
	}
	res, _ = with(t, d, "POST", "/mcp", as.token(map[string]any{"aud": resource, "scope": "x"}), `{}`)
	if got := res.Header.Get("WWW-Authenticate"); res.StatusCode != 403 || !strings.Contains(got,
		`oauth-protected-resource/mcp", error="insufficient_scope", scope="containers"`) {
		t.Errorf("without the scope: %d %s", res.StatusCode, got)
	}
	// What is open with a token ends when it expires.
	short := as.token(map[string]any{"aud": resource, "exp": time.Now().Unix() + 2})
	begin := time.Now()
	res, _ = with(t, d, "GET", "/v1/events", short, "") // returns when the stream ends
	if took := time.Since(begin); res.StatusCode != 200 || took < time.Second || took > 20*time.Second {
		t.Errorf("a stream with a token of 2 s: %d after %s", res.StatusCode, took)
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
	as := newAuthServer(t)
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
	if err != nil || len(list.Tools) == 0 || as.tokens != 1 {
		t.Errorf("%d tools after %d tokens, %v", len(list.Tools), as.tokens, err)
	}
}

// Package oauthtest has a small OAuth authorization server, for tests of what takes access tokens.
package oauthtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
)

// Who its tokens are for, and what they may.
const (
	Subject = "alice"
	Scope   = "containers"
)

// A Server registers every client, gives codes to all who ask, as a person who always consents, and gives tokens for
// the resource that was asked for.
type Server struct {
	*httptest.Server
	t   testing.TB
	key *ecdsa.PrivateKey

	mu    sync.Mutex            // guards what follows
	codes map[string]url.Values // requests by the codes for them, each of which is used once
	given int                   // codes
	taken int                   // tokens
}

// New starts a server, until the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, key: key, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", s.describe)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k",
			Use: "sig"}}})
	})
	mux.HandleFunc("POST /register", s.register)
	mux.HandleFunc("GET /authorize", s.authorize)
	mux.HandleFunc("POST /token", s.exchange)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// Tokens returns how many tokens clients got for codes.
func (s *Server) Tokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Token signs a token for Subject that is good for five minutes, with claims in place of the usual ones.
func (s *Server) Token(claims map[string]any) string {
	s.t.Helper()
	now := time.Now().Unix()
	all := map[string]any{"iss": s.URL, "sub": Subject, "iat": now, "exp": now + 300, "scope": Scope,
		"client_id": "client-1", "jti": strconv.FormatInt(now, 10)}
	maps.Copy(all, claims)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: s.key},
		(&jose.SignerOptions{}).WithType("at+jwt").WithHeader("kid", "k"))
	var text string
	if err == nil {
		text, err = jwt.Signed(signer).Claims(all).Serialize()
	}
	if err != nil {
		s.t.Error(err)
	}
	return text
}

func (s *Server) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Error(err)
	}
}

func (s *Server) describe(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize",
		"token_endpoint": s.URL + "/token", "registration_endpoint": s.URL + "/register",
		"jwks_uri": s.URL + "/keys", "response_types_supported": []string{"code"},
		"code_challenge_methods_supported":      []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none"},
		"grant_types_supported":                 []string{"authorization_code"}, "scopes_supported": []string{Scope}})
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var asked map[string]any
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		s.answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_client_metadata"})
		return
	}
	asked["client_id"], asked["token_endpoint_auth_method"] = "client-1", "none"
	s.answer(w, http.StatusCreated, asked)
}

func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	s.given++
	code := "code-" + strconv.Itoa(s.given)
	s.codes[code] = q
	s.mu.Unlock()
	to := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {s.URL}}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+to.Encode(), http.StatusFound)
}

func (s *Server) exchange(w http.ResponseWriter, r *http.Request) {
	code := r.PostFormValue("code")
	s.mu.Lock()
	q := s.codes[code]
	delete(s.codes, code)
	s.mu.Unlock()
	if q == nil || oauth2.S256ChallengeFromVerifier(r.PostFormValue("code_verifier")) != q.Get("code_challenge") {
		s.answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	s.mu.Lock()
	s.taken++
	s.mu.Unlock()
	s.answer(w, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": 300, "scope": Scope,
		"access_token": s.Token(map[string]any{"aud": q.Get("resource")})})
}

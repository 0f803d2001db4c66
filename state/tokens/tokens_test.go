package tokens

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/proto"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const resource = "https://berth.example.org"

// An issuer publishes keys, and signs tokens with them.
type issuer struct {
	*httptest.Server
	fetched atomic.Int64 // times its keys were fetched

	mu     sync.Mutex
	keys   map[string]crypto.Signer
	extra  []any          // keys that sign nothing
	meta   map[string]any // in place of its metadata
	status int            // of its answers; 0: 200
	silent chan struct{}  // not nil: it answers for its keys when this is closed
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{keys: map[string]crypto.Signer{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/tenant/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		meta := map[string]any{"issuer": i.URL + "/tenant", "jwks_uri": i.URL + "/keys"}
		maps.Copy(meta, i.meta)
		json.NewEncoder(w).Encode(meta)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		i.fetched.Add(1)
		i.mu.Lock()
		silent := i.silent
		i.mu.Unlock()
		if silent != nil {
			select {
			case <-silent:
			case <-r.Context().Done():
			}
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.status != 0 {
			w.WriteHeader(i.status)
			return
		}
		keys := slices.Clone(i.extra)
		for id, key := range i.keys {
			keys = append(keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Use: "sig"})
		}
		json.NewEncoder(w).Encode(map[string]any{"keys": keys})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	i.add("one")
	return i
}

func (i *issuer) add(id string) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[id] = key
	return key
}

func (i *issuer) change(fn func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	fn()
}

// claims are those of a good token, with changes. A nil value leaves a claim out.
func (i *issuer) claims(changes map[string]any) map[string]any {
	now := time.Now().Unix()
	c := map[string]any{"iss": i.URL + "/tenant", "aud": resource, "sub": "alice", "iat": now, "nbf": now,
		"exp": now + 300, "scope": "containers other", "client_id": "c"}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kind, id string, claims any) string {
	t.Helper()
	opts := (&jose.SignerOptions{}).WithType(jose.ContentType(kind))
	if id != "" {
		opts = opts.WithHeader("kid", id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (i *issuer) token(t *testing.T, changes map[string]any) string {
	t.Helper()
	return sign(t, jose.ES256, i.keys["one"], "at+jwt", "one", i.claims(changes))
}

func (i *issuer) source(t *testing.T, change func(*Config)) *Source {
	t.Helper()
	cfg := Config{Issuer: i.URL + "/tenant", Resource: resource + "/", Scopes: []string{"containers"},
		Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestGoodTokens(t *testing.T) {
	i := newIssuer(t)
	s := i.source(t, nil)
	for name, changes := range map[string]map[string]any{
		"plain": nil, "audience of many": {"aud": []string{"x", resource}}, "MCP": {"aud": resource + "/mcp"},
		"with a slash": {"aud": resource + "/"}, "slow clock": {"exp": time.Now().Unix() - 5},
		"fast clock": {"nbf": time.Now().Unix() + 5},
	} {
		got, err := s.Verify(t.Context(), i.token(t, changes))
		if err != nil || got.Subject != "alice" || !got.Expires.After(time.Now()) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if n := i.fetched.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
	text := sign(t, jose.ES256, i.keys["one"], "application/at+jwt", "", i.claims(nil)) // one key needs no name
	if _, err := s.Verify(t.Context(), text); err != nil {
		t.Error(err)
	}
	mail := i.source(t, func(c *Config) { c.Claim = "email" })
	if got, err := mail.Verify(t.Context(), i.token(t, map[string]any{"email": "a@b.test"})); err != nil ||
		got.Subject != "a@b.test" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestForgedTokens checks that no token counts that the issuer did not issue for this daemon and for now.
func TestForgedTokens(t *testing.T) {
	i := newIssuer(t)
	s := i.source(t, nil)
	key := i.keys["one"].(*ecdsa.PrivateKey)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i.change(func() { i.keys["rsa"] = rsaKey })
	stranger, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	secrets := [][]byte{der, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}
	// A symmetric key in the set must not count either.
	i.change(func() { i.extra = []any{jose.JSONWebKey{Key: der, KeyID: "sym"}} })
	raw := func(header string, claims any) string {
		body, _ := json.Marshal(claims)
		return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(body)
	}
	good := i.token(t, nil)
	parts := strings.Split(good, ".")
	other, _ := json.Marshal(i.claims(map[string]any{"sub": "bob"}))
	forged := map[string]string{
		"alg none":         raw(`{"alg":"none","typ":"at+jwt","kid":"one"}`, i.claims(nil)) + ".",
		"no signature":     parts[0] + "." + parts[1] + ".",
		"other claims":     parts[0] + "." + base64.RawURLEncoding.EncodeToString(other) + "." + parts[2],
		"other key":        sign(t, jose.ES256, stranger, "at+jwt", "one", i.claims(nil)),
		"unknown key":      sign(t, jose.ES256, stranger, "at+jwt", "two", i.claims(nil)),
		"no key":           sign(t, jose.ES256, stranger, "at+jwt", "", i.claims(nil)),
		"other algorithm":  sign(t, jose.RS256, rsaKey, "at+jwt", "one", i.claims(nil)),
		"symmetric key":    sign(t, jose.HS256, der, "at+jwt", "sym", i.claims(nil)),
		"HS256 by the DER": sign(t, jose.HS256, secrets[0], "at+jwt", "rsa", i.claims(nil)),
		"HS256 by the PEM": sign(t, jose.HS256, secrets[1], "at+jwt", "rsa", i.claims(nil)),
		"ID token":         sign(t, jose.ES256, key, "JWT", "one", i.claims(nil)),
		"no type":          sign(t, jose.ES256, key, "", "one", i.claims(nil)),
		"too long":         i.token(t, map[string]any{"x": strings.Repeat("x", maxToken)}),
	}
	now := time.Now().Unix()
	for name, changes := range map[string]map[string]any{
		"issuer": {"iss": "https://evil.test"}, "no issuer": {"iss": nil}, "issuer with a slash": {"iss": i.URL + "/tenant/"},
		"audience": {"aud": "https://other.test"}, "no audience": {"aud": nil}, "longer audience": {"aud": resource + ".evil.test"},
		"path of the audience": {"aud": resource + "/other"},
		"expired":              {"exp": now - 60}, "no expiry": {"exp": nil}, "not yet": {"nbf": now + 60}, "issued later": {"iat": now + 60},
		"no subject": {"sub": nil}, "empty subject": {"sub": ""}, "number for a subject": {"sub": 7},
		"long subject":     {"sub": strings.Repeat("a", proto.MaxKeyName-len(NamePrefix)+1)},
		"no name of a key": {"sub": "a\u0085b"}, "bound": {"cnf": map[string]string{"jkt": "x"}},
	} {
		forged[name] = i.token(t, changes)
	}
	for name, text := range forged {
		if got, err := s.Verify(t.Context(), text); err != errWrong {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, scope := range []any{nil, "", "container", "containersx", []string{"containers"}} {
		_, err := s.Verify(t.Context(), i.token(t, map[string]any{"scope": scope}))
		if proto.CodeOf(err) != proto.PermissionDenied || proto.AsError(err).Item != MissingScope {
			t.Errorf("scope %v: %v", scope, err)
		}
	}
	if _, err := s.Verify(t.Context(), good); err != nil {
		t.Errorf("the good token: %v", err)
	}
}

// TestKeysRotate checks that new keys are found, removed ones are forgotten, and that wrong tokens cause few requests.
func TestKeysRotate(t *testing.T) {
	i := newIssuer(t)
	var skew atomic.Int64
	s := i.source(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) } })
	lasting := func(id string) string {
		return sign(t, jose.ES256, i.keys[id], "at+jwt", id, i.claims(map[string]any{"exp": time.Now().Add(240 * time.Hour).Unix()}))
	}
	one := lasting("one")
	if _, err := s.Verify(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	i.add("two")
	two := lasting("two")
	for range 20 {
		if _, err := s.Verify(t.Context(), two); err != errWrong {
			t.Errorf("within the pause: %v", err)
		}
	}
	if n := i.fetched.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
	skew.Add(int64(keysPause + time.Second))
	if _, err := s.Verify(t.Context(), two); err != nil {
		t.Errorf("a new key: %v", err)
	}
	i.change(func() { delete(i.keys, "one") })
	skew.Add(int64(keysFresh + time.Second))
	if _, err := s.Verify(t.Context(), one); err != errWrong {
		t.Errorf("a removed key: %v", err)
	}
	i.change(func() { i.status = 500 })
	skew.Add(int64(time.Hour))
	if _, err := s.Verify(t.Context(), two); err != nil {
		t.Errorf("while the issuer is down: %v", err)
	}
	skew.Add(int64(keysLast))
	for range 3 {
		if _, err := s.Verify(t.Context(), two); proto.CodeOf(err) != proto.Unavailable {
			t.Errorf("a day later: %v", err)
		}
	}
}

// TestSilentIssuer checks that an issuer that does not answer stops no token whose key is known, that its answer counts
// when it comes, and that the end does not wait for it.
func TestSilentIssuer(t *testing.T) {
	i := newIssuer(t)
	var skew atomic.Int64
	s := i.source(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) } })
	lasting := map[string]any{"exp": time.Now().Add(240 * time.Hour).Unix()}
	one := i.token(t, lasting)
	if _, err := s.Verify(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	silent := make(chan struct{})
	i.change(func() { i.silent = silent })
	key := i.add("two")
	skew.Add(int64(keysFresh + time.Second))
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), fetchLimit/2)
		if _, err := s.Verify(ctx, one); err != nil || ctx.Err() != nil {
			t.Fatalf("a token with a known key: %v, %v", err, ctx.Err())
		}
		cancel()
	}
	answered := time.AfterFunc(100*time.Millisecond, func() { close(silent) })
	defer answered.Stop()
	two := sign(t, jose.ES256, key, "at+jwt", "two", i.claims(lasting))
	if _, err := s.Verify(t.Context(), two); err != nil {
		t.Errorf("a key of the late answer: %v", err)
	}
	if n := i.fetched.Load(); n != 2 {
		t.Errorf("the keys were fetched %d times", n)
	}
	i.change(func() { i.silent = make(chan struct{}) })
	skew.Add(int64(keysFresh + time.Second))
	if _, err := s.Verify(t.Context(), one); err != nil {
		t.Errorf("the second time: %v", err)
	}
	begin := time.Now()
	if err := s.Close(); err != nil || time.Since(begin) > fetchLimit/2 {
		t.Errorf("the end: %v after %s", err, time.Since(begin))
	}
	if _, err := s.Verify(t.Context(), one); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// TestIssuersMetadata checks that keys come only from where the operator's issuer says.
func TestIssuersMetadata(t *testing.T) {
	for name, meta := range map[string]map[string]any{
		"other issuer": {"issuer": "https://evil.test"}, "keys in clear text": {"jwks_uri": "http://evil.test/keys"},
		"no keys": {"jwks_uri": ""}, "a file": {"jwks_uri": "file:///etc/passwd"},
	} {
		i := newIssuer(t)
		i.meta = meta
		if _, err := i.source(t, nil).Verify(t.Context(), i.token(t, nil)); proto.CodeOf(err) != proto.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	i := newIssuer(t)
	moved := httptest.NewServer(http.RedirectHandler(i.URL+"/keys", http.StatusFound))
	defer moved.Close()
	i.meta = map[string]any{"jwks_uri": moved.URL}
	if _, err := i.source(t, nil).Verify(t.Context(), i.token(t, nil)); proto.CodeOf(err) != proto.Unavailable ||
		i.fetched.Load() != 0 {
		t.Errorf("a redirect: %v", err)
	}
	i = newIssuer(t)
	i.meta = map[string]any{"jwks_uri": i.URL + "/keys?p=policy"}
	if _, err := i.source(t, nil).Verify(t.Context(), i.token(t, nil)); err != nil {
		t.Errorf("keys with a query: %v", err)
	}
	var log bytes.Buffer
	i = newIssuer(t)
	i.meta = map[string]any{"jwks_uri": "keys"}
	i.source(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }).Verify(t.Context(), i.token(t, nil))
	if text := log.String(); !strings.Contains(text, "the authorization server publishes") || strings.Contains(text, "write it") {
		t.Errorf("the log says %s", text)
	}
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"keys":[` + strings.Repeat(" ", maxDocument) + `]}`))
	}))
	defer long.Close()
	i = newIssuer(t)
	i.meta = map[string]any{"jwks_uri": long.URL}
	if _, err := i.source(t, nil).Verify(t.Context(), i.token(t, nil)); proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("a long answer: %v", err)
	}
}

// TestUnknownKeys checks that a key of another kind does not disturb the good one beside it.
func TestUnknownKeys(t *testing.T) {
	const x = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for name, key := range map[string]any{
		"curve":         map[string]any{"kty": "EC", "crv": "secp256k1", "kid": "k", "x": x, "y": x},
		"encryption":    map[string]any{"kty": "OKP", "crv": "X25519", "kid": "k", "use": "enc", "x": x},
		"kind":          map[string]any{"kty": "new", "kid": "k"},
		"no kind":       map[string]any{"kid": "k"},
		"no members":    map[string]any{"kty": "RSA", "kid": "k"},
		"type of a kid": map[string]any{"kty": "EC", "kid": 7},
		"no object":     "key",
	} {
		i := newIssuer(t)
		i.extra = []any{key}
		if _, err := i.source(t, nil).Verify(t.Context(), i.token(t, nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConfigs(t *testing.T) {
	for name, c := range map[string]Config{
		"clear text": {Issuer: "http://issuer.test", Resource: resource}, "no resource": {Issuer: "https://issuer.test"},
		"query": {Issuer: "https://issuer.test/?a=1", Resource: resource}, "name": {Issuer: "issuer.test", Resource: resource},
		"scope": {Issuer: "https://issuer.test", Resource: resource, Scopes: []string{`a"b`}},
	} {
		if _, err := Open(c); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// FuzzVerify checks that no text makes the daemon fail or is taken.
func FuzzVerify(f *testing.F) {
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIiwidHlwIjoiYXQrand0In0.eyJpc3MiOiJodHRwczovL2lzc3Vlci50ZXN0In0.")
	s, err := Open(Config{Issuer: "http://127.0.0.1:1", Resource: resource, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := s.Verify(context.Background(), text); err == nil {
			t.Errorf("%q is taken", text)
		}
		s.IsOurs(text)
	})
}

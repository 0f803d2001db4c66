// Package tokens knows the access tokens that an authorization server of the operator's has issued for this daemon
// (OAuth 2.0, RFC 9068): JSON web tokens, signed with a key that the server publishes.
//
// A token stands for an API key: the one that is named after its subject. Owner, quotas, rate and revocation are then
// those of that key, and everything below knows keys alone.
package tokens

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"berth/proto"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A Config says whose tokens are taken.
type Config struct {
	Issuer   string   // URL of the authorization server, as its tokens have it
	Resource string   // URL of this daemon, without a slash at its end; an audience of the tokens
	Claim    string   // of the tokens that says who somebody is; "" is sub
	Scopes   []string // that a token must have
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// A Source verifies tokens. It is safe for concurrent use.
type Source struct {
	cfg  Config
	keys *keySet
}

// A Token is what a valid token says.
type Token struct {
	Subject string
	Expires time.Time // by the slower of both clocks
}

// algorithms are those that tokens may be signed with. Symmetric ones are left out, since the key that verifies would
// sign, and so is none.
var algorithms = []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.RS384, jose.RS512,
	jose.PS256, jose.PS384, jose.PS512, jose.EdDSA}

// Bounds of tokens. A header of a request has at most 64 KiB.
const (
	maxToken   = 16 << 10
	maxSubject = proto.MaxKeyName - len(NamePrefix)
	clockSkew  = 30 * time.Second // how far the clocks of both servers may differ
)

// Open checks the configuration. It asks the authorization server for nothing, so that a daemon starts without it.
func Open(cfg Config) (*Source, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Claim == "" {
		cfg.Claim = "sub"
	}
	for what, text := range map[string]string{"issuer": cfg.Issuer, "resource": cfg.Resource} {
		if err := checkURL(text); err != nil {
			return nil, fmt.Errorf("the %s %w", what, err)
		}
	}
	cfg.Resource = strings.TrimSuffix(cfg.Resource, "/")
	for _, scope := range cfg.Scopes {
		wrong := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
		if scope == "" || strings.ContainsFunc(scope, wrong) {
			return nil, fmt.Errorf("%q is no scope", scope)
		}
	}
	return &Source{cfg: cfg, keys: newKeySet(cfg.Issuer, cfg.Now, cfg.Log)}, nil
}

// Close ends what runs. Tokens whose keys are known are still verified.
func (s *Source) Close() error {
	s.keys.close()
	return nil
}

// checkURL accepts the URL of an issuer or of this daemon: https, and http on this machine.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is no URL; write it as https://example.org, without a query", text)
	}
	return checkScheme(u)
}

// checkKeysURL accepts where an issuer may publish its keys. Unlike an issuer it can have a query.
func checkKeysURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("the authorization server publishes %.200q, which is no whole URL without a user and a "+
			"fragment", text)
	}
	return checkScheme(u)
}

func checkScheme(u *url.URL) error {
	ip := net.ParseIP(u.Hostname())
	if local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(); u.Scheme != "https" &&
		(u.Scheme != "http" || !local) {
		return fmt.Errorf("%.200q has to begin with https://", u)
	}
	return nil
}

// Is reports whether a text has the form of a token. An API key has no dot.
func Is(text string) bool { return strings.Count(text, ".") == 2 && len(text) > 20 }

// IsOurs reports whether a text claims to be a token of the issuer. Such a text must not leave the daemon.
func (s *Source) IsOurs(text string) bool {
	if s == nil || !Is(text) {
		return false
	}
	token, err := jwt.ParseSigned(text, algorithms)
	var claims jwt.Claims
	return err == nil && token.UnsafeClaimsWithoutVerification(&claims) == nil && claims.Issuer == s.cfg.Issuer
}

// errWrong is the answer to every unusable token. The log says more.
var errWrong = proto.Errorf(proto.Unauthenticated, "", "", "Invalid access token.")

// MissingScope is the item of the error about a token without a required scope.
const MissingScope = "scope"

// Verify returns what a token says, if the issuer has issued it for this daemon and it is valid now.
func (s *Source) Verify(ctx context.Context, text string) (Token, error) {
	t, err := s.verify(ctx, text)
	var known *proto.Error
	if err == nil || errors.As(err, &known) {
		return t, err
	}
	s.cfg.Log.Debug("an access token is refused", "error", err)
	return Token{}, errWrong
}

func (s *Source) verify(ctx context.Context, text string) (Token, error) {
	if len(text) > maxToken {
		return Token{}, errors.New("it is too long")
	}
	parsed, err := jwt.ParseSigned(text, algorithms)
	if err != nil {
		return Token{}, err
	}
	header := parsed.Headers[0]
	// The type tells an access token from other tokens of the same server, such as ID tokens.
	kind, _ := header.ExtraHeaders[jose.HeaderType].(string)
	if kind = strings.TrimPrefix(strings.ToLower(kind), "application/"); kind != "at+jwt" {
		return Token{}, fmt.Errorf("its type is %q and not at+jwt", kind)
	}
	key, err := s.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return Token{}, err
	}
	var claims jwt.Claims
	others := map[string]any{}
	if err := parsed.Claims(key, &claims, &others); err != nil {
		return Token{}, err
	}
	return s.check(claims, others)
}

// check compares the claims of a token whose signature is right.
func (s *Source) check(claims jwt.Claims, others map[string]any) (Token, error) {
	if claims.Expiry == nil {
		return Token{}, errors.New("it has no expiry")
	}
	err := claims.ValidateWithLeeway(jwt.Expected{Issuer: s.cfg.Issuer, Time: s.cfg.Now(),
		AnyAudience: s.audiences()}, clockSkew)
	if err != nil {
		return Token{}, err
	}
	// A token that is bound to a key of its client proves nothing without that key.
	if _, bound := others["cnf"]; bound {
		return Token{}, errors.New("it is bound to a key, and was sent without a proof")
	}
	subject, _ := others[s.cfg.Claim].(string)
	if subject == "" || len(subject) > maxSubject || strings.ContainsFunc(subject, unicode.IsControl) {
		return Token{}, fmt.Errorf("its claim %s is no printable text of at most %d bytes, so it names no API key",
			s.cfg.Claim, maxSubject)
	}
	scopes, _ := others["scope"].(string)
	for _, scope := range s.cfg.Scopes {
		if !slices.Contains(strings.Fields(scopes), scope) {
			return Token{}, proto.Errorf(proto.PermissionDenied, "", MissingScope, "The access token lacks the scope "+
				"%s.", scope)
		}
	}
	return Token{Subject: subject, Expires: claims.Expiry.Time().Add(clockSkew)}, nil
}

// audiences are the names of this daemon in tokens: its URL, and that of its MCP endpoint, by which MCP clients ask.
func (s *Source) audiences() []string {
	return []string{s.cfg.Resource, s.cfg.Resource + "/", s.cfg.Resource + mcpPath}
}

// mcpPath is the path of the MCP endpoint, which has metadata of its own.
const mcpPath = "/mcp"

// MetadataPath is where the metadata of the daemon is. That of a path below it has the path at its end (RFC 9728,
// section 3.1).
const MetadataPath = "/.well-known/oauth-protected-resource"

// Metadata is what a client without a token has to know (RFC 9728).
type Metadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}

// Documents returns the metadata of the daemon and of its MCP endpoint, by path.
func (s *Source) Documents() map[string]any {
	m := Metadata{Resource: s.cfg.Resource, Servers: []string{s.cfg.Issuer}, Scopes: s.cfg.Scopes,
		Methods: []string{"header"}, Name: "berth"}
	mcp := m
	mcp.Resource += mcpPath
	return map[string]any{MetadataPath: m, MetadataPath + mcpPath: mcp}
}

// Challenge returns the WWW-Authenticate header of an answer to a request for a path, or "" if the error is none that a
// token would help with. It says where the metadata is, and which scopes a token needs.
func (s *Source) Challenge(path string, err *proto.Error) string {
	lacking := err.Code == proto.PermissionDenied && err.Item == MissingScope
	if err.Code != proto.Unauthenticated && !lacking {
		return ""
	}
	at := s.cfg.Resource + MetadataPath
	if path == mcpPath || strings.HasPrefix(path, mcpPath+"/") {
		at += mcpPath
	}
	text := fmt.Sprintf("Bearer resource_metadata=%q", at)
	if lacking {
		text += `, error="insufficient_scope"`
	}
	if len(s.cfg.Scopes) > 0 {
		text += fmt.Sprintf(", scope=%q", strings.Join(s.cfg.Scopes, " "))
	}
	return text
}

package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// A Caller is who sent a request.
type Caller = proto.Caller

// An Authenticator knows the API keys, and the access tokens if there are any. It compares keys in constant time. It
// fails with Unauthenticated for a wrong key, and with TooMany for a key that is over its rate.
type Authenticator interface {
	Authenticate(ctx context.Context, key string) (Caller, error)
	Life(keyID string) context.Context // ends when the key is no longer valid
}

// maxKeysTried bounds how many keys of one request are tried, against guessing.
const maxKeysTried = 4

// errNoKey is the answer to a request without a credential.
var errNoKey = proto.Errorf(proto.Unauthenticated, "", "", "An API key is required: send it as X-Api-Key or as "+
	"Authorization: Bearer.")

// authenticate accepts a key in either header. Clients send both when a proxy adds one; one valid key is enough. A
// request without a key may have the console's cookie, see cookie.go; then life ends with the login.
func (s *Server) authenticate(r *http.Request, e *Edge) (c Caller, life context.Context, err error) {
	keys := keysOf(r)
	if len(keys) == 0 && e != nil && e.Browser && s.cfg.Logins != nil {
		return s.authenticateBrowser(r)
	}
	c, err = s.authenticateKeys(r, e, keys)
	return c, nil, err
}

func (s *Server) authenticateKeys(r *http.Request, e *Edge, keys []string) (c Caller, err error) {
	err = errNoKey
	for _, key := range keys[:min(len(keys), maxKeysTried)] {
		if e != nil && e.Key != nil {
			key = e.Key(key)
		}
		if c, err = s.cfg.Auth.Authenticate(r.Context(), key); proto.CodeOf(err) != proto.Unauthenticated {
			return c, err
		}
	}
	return Caller{}, err
}

// errKeyEnded ends requests whose key is revoked or expires while they run.
var errKeyEnded = proto.Errorf(proto.Unauthenticated, "", "", "The API key was revoked or has expired.")

// errTokenEnded ends requests whose access token expires while they run.
var errTokenEnded = proto.Errorf(proto.Unauthenticated, "", "", "The access token has expired.")

// errLoginEnded ends requests of a browser that logs out while they run.
var errLoginEnded = proto.Errorf(proto.Unauthenticated, "", "", "This browser was logged out.")

// bindCaller attaches the caller to a request and ends the request together with the caller's key, and with the login
// whose life that is, if it is not nil. Then streams end, and further reads and writes of the handler fail.
func (s *Server) bindCaller(x *exchange, c Caller, life context.Context) {
	ctx, cancel := context.WithCancelCause(proto.WithCaller(x.r.Context(), c))
	stop := context.AfterFunc(s.cfg.Auth.Life(c.KeyID), func() { cancel(errKeyEnded) })
	leave, expiry := func() bool { return true }, func() bool { return true }
	if life != nil {
		leave = context.AfterFunc(life, func() { cancel(errLoginEnded) })
	}
	if !c.Ends.IsZero() {
		expiry = time.AfterFunc(time.Until(c.Ends), func() { cancel(errTokenEnded) }).Stop
	}
	x.owner, x.r = c.Owner, x.r.WithContext(ctx)
	x.releaseCaller = func() {
		stop()
		leave()
		expiry()
		cancel(nil)
	}
}

// keyEnded returns errKeyEnded if the key of the request of ctx is no longer valid, and likewise errTokenEnded and
// errLoginEnded.
func keyEnded(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	switch cause := context.Cause(ctx); cause {
	case error(errKeyEnded), error(errTokenEnded), error(errLoginEnded):
		return cause
	}
	return nil
}

func keysOf(r *http.Request) (keys []string) {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		keys = append(keys, key)
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if key = strings.TrimSpace(key); strings.EqualFold(scheme, "Bearer") && key != "" {
		keys = append(keys, key)
	}
	return append(keys, subprotocolKeys(r)...)
}

// keyProtocol is the prefix of a subprotocol that carries a key in base64url without padding. A web page can set no
// websocket header except the list of subprotocols, and a key in the URL would appear in logs.
const keyProtocol = "berth.key."

// subprotocolKeys returns the keys in the subprotocols of a websocket handshake.
func subprotocolKeys(r *http.Request) (keys []string) {
	if !websocket.IsWebSocketUpgrade(r) {
		return nil
	}
	for _, p := range websocket.Subprotocols(r) {
		text, ok := strings.CutPrefix(p, keyProtocol)
		if key, err := base64.RawURLEncoding.DecodeString(text); ok && err == nil && len(key) > 0 {
			keys = append(keys, string(key))
		}
	}
	return keys
}

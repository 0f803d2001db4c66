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

// authenticate accepts a key in either header. Clients send both when a proxy adds one; one valid key is enough.
func (s *Server) authenticate(r *http.Request, e *Edge) (c Caller, err error) {
	err = proto.Errorf(proto.Unauthenticated, "", "", "An API key is required: send it as X-Api-Key or as "+
		"Authorization: Bearer.")
	keys := keysOf(r)
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

// bindCaller attaches the caller to a request and ends the request together with the caller's key. Then streams end,
// and further reads and writes of the handler fail.
func (s *Server) bindCaller(x *exchange, c Caller) {
	ctx, cancel := context.WithCancelCause(proto.WithCaller(x.r.Context(), c))
	stop := context.AfterFunc(s.cfg.Auth.Life(c.KeyID), func() { cancel(errKeyEnded) })
	expiry := func() bool { return true }
	if !c.Ends.IsZero() {
		expiry = time.AfterFunc(time.Until(c.Ends), func() { cancel(errTokenEnded) }).Stop
	}
	x.owner, x.r = c.Owner, x.r.WithContext(ctx)
	x.releaseCaller = func() {
		stop()
		expiry()
		cancel(nil)
	}
}

// keyEnded returns errKeyEnded if the key of the request of ctx is no longer valid, and errTokenEnded if its token is
// not.
func keyEnded(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause == error(errKeyEnded) || cause == error(errTokenEnded) {
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

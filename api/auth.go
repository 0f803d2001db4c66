package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// A Caller is who sent a request.
type Caller = proto.Caller

// An Authenticator knows API keys. It compares in constant time and fails with
// Unauthenticated for a key that is not one, and with TooMany for one that is used too often.
type Authenticator interface {
	Authenticate(ctx context.Context, key string) (Caller, error)
	Life(keyID string) context.Context // ends when the key may no longer be used
}

// maxKeysTried bounds how many keys of one request are tried: who sends more is guessing.
const maxKeysTried = 4

// authenticate accepts a key in either header. Clients send both when a proxy adds one, and then
// one that is right is enough.
func (s *Server) authenticate(r *http.Request) (c Caller, err error) {
	err = proto.Errorf(proto.Unauthenticated, "", "", "An API key is required: send it as X-Api-Key or as "+
		"Authorization: Bearer.")
	keys := keysOf(r)
	for _, key := range keys[:min(len(keys), maxKeysTried)] {
		if c, err = s.cfg.Auth.Authenticate(r.Context(), key); proto.CodeOf(err) != proto.Unauthenticated {
			return c, err
		}
	}
	return Caller{}, err
}

// errKeyEnded is how requests under way end whose key is revoked or expires.
var errKeyEnded = proto.Errorf(proto.Unauthenticated, "", "", "The API key was revoked or has expired.")

// bindCaller puts the caller on a request, which is over when the caller's key is: streams end, and what a handler
// still reads or writes fails.
func (s *Server) bindCaller(x *exchange, c Caller) {
	ctx, cancel := context.WithCancelCause(proto.WithCaller(x.r.Context(), c))
	stop := context.AfterFunc(s.cfg.Auth.Life(c.KeyID), func() { cancel(errKeyEnded) })
	x.owner, x.r = c.Owner, x.r.WithContext(ctx)
	x.releaseCaller = func() {
		stop()
		cancel(nil)
	}
}

// keyEnded is errKeyEnded once the key of the request that ctx belongs to may no longer be used.
func keyEnded(ctx context.Context) error {
	if ctx.Err() != nil && context.Cause(ctx) == error(errKeyEnded) {
		return errKeyEnded
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

// keyProtocol begins the subprotocol that carries a key in base64url, without padding. A page in a
// browser can set no header of a websocket but the list of subprotocols, and a key in the URL would end in logs.
const keyProtocol = "berth.key."

// subprotocolKeys are the keys that a websocket's handshake carries.
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

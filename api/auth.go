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
// Unauthenticated for a key that is not one.
type Authenticator interface {
	Authenticate(ctx context.Context, key string) (Caller, error)
}

// authenticate accepts a key in either header. Clients send both when a proxy adds one, and then
// one that is right is enough.
func (s *Server) authenticate(r *http.Request) (c Caller, err error) {
	err = proto.Errorf(proto.Unauthenticated, "", "", "An API key is required: send it as X-Api-Key or as Authorization: Bearer.")
	for _, key := range keysOf(r) {
		if c, err = s.cfg.Auth.Authenticate(r.Context(), key); err == nil {
			return c, nil
		}
	}
	return Caller{}, err
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

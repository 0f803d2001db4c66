// Package access holds the credentials of the E2B edge: how API keys are spelled there, the tokens of sandboxes, and
// the signatures of URLs. Nothing of them is stored: each is derived from the API key that it was given to, and ends
// with that key.
//
// api/e2b gives tokens out, and checks what requests have.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"berth/proto"
)

// keyPrefix begins an API key as E2B's clients take it: they want lower-case hexadecimal digits after it.
const keyPrefix = "e2b_"

// SpellKey returns an API key in the form that all of E2B's clients take.
func SpellKey(key string) string { return keyPrefix + hex.EncodeToString([]byte(key)) }

// Key returns the API key that SpellKey spelled so, or the text itself if that is no such spelling.
func Key(spelled string) string {
	digits, ok := strings.CutPrefix(spelled, keyPrefix)
	if key, err := hex.DecodeString(digits); ok && err == nil && len(key) > 0 {
		return string(key)
	}
	return spelled
}

// A Sandbox is a container as far as tokens go. session.Session is one.
type Sandbox interface {
	ID() string
	Owner() string
	Digest(text string) string // keyed hash, the same under later daemons
}

// Keys are the API keys. Package keys has them.
type Keys interface {
	List() []proto.Key
	Life(keyID string) context.Context // ends when the key is no longer valid
}

// Token returns the token of a sandbox for an API key. It begins with the ID of the sandbox, in the spelling of host
// names, and names the key, so that a request that has nothing else can be routed by it.
func Token(s Sandbox, keyID string) string {
	return strings.Join([]string{proto.HostID(s.ID()), keyID, s.Digest("e2b token\x00" + s.ID() + "\x00" + keyID)}, ".")
}

// TrafficToken returns the token that requests to ports of a sandbox without public traffic must have.
func TrafficToken(s Sandbox) string { return s.Digest("e2b traffic\x00" + s.ID()) }

// ContainerOf returns the ID of the container whose token this seems to be, or "".
func ContainerOf(token string) string {
	label, _, _ := strings.Cut(token, ".")
	return proto.IDOfHost(label)
}

// KeyOf returns the ID of the API key that a token of a sandbox was given to, or "" if it is no token of this sandbox
// or if its key is no longer valid.
func KeyOf(s Sandbox, keys Keys, token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || !Equal(token, Token(s, parts[1])) || keys.Life(parts[1]).Err() != nil {
		return ""
	}
	return parts[1]
}

// Equal compares two secrets in constant time.
func Equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// A Signed is what a signature of a URL is for.
type Signed struct {
	Path      string // as in the URL
	Operation string // read or write
	User      string // "" if the URL names none
	Expires   string // unix seconds, or "" for never
	Signature string
}

// Sign returns the signature of a URL with a token.
func (u Signed) Sign(token string) string {
	text := u.Path + ":" + u.Operation + ":" + u.User + ":" + token
	if u.Expires != "" {
		text += ":" + u.Expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// KeyOf returns the ID of the API key whose token of the sandbox signed the URL, or "". Whether the URL has expired is
// another question.
func (u Signed) KeyOf(s Sandbox, keys Keys) string {
	for _, k := range keys.List() {
		if k.Owner == s.Owner() && Equal(u.Sign(Token(s, k.ID)), u.Signature) && keys.Life(k.ID).Err() == nil {
			return k.ID
		}
	}
	return ""
}

// Expired reports whether the URL is no longer valid. One whose time is no number is not.
func (u Signed) Expired(now time.Time) bool {
	if u.Expires == "" {
		return false
	}
	at, err := strconv.ParseInt(u.Expires, 10, 64)
	return err != nil || now.Unix() >= at
}

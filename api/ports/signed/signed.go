// Package signed makes and checks the tokens of signed URLs: who has one may use one port of one container until a
// time. A token names the API key that made it and the time, and is authenticated together with the container and the
// port (HMAC-SHA-256). Nothing is stored for a token.
//
// The key is random. It is made when the first token is, and is in the ledger, sealed by the vault.
package signed

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/state/vault"
)

// Names in the ledger. The key is sealed under the name of its record.
const (
	bucket = "ports"
	record = "url-key"
)

const (
	keyBytes  = 32
	timeBytes = 8 // of a token, before the ID of its key
	maxToken  = 256
	purpose   = "berth signed port 1\x00" // separates these MACs from all others
)

// A Vault seals the key. Package vault has one.
type Vault interface {
	Seal(name string, text []byte) (string, error)
	Unseal(name, sealed string) ([]byte, error)
}

// A keyRecord is the key in the ledger.
type keyRecord struct {
	Sealed string `json:"sealed"`
}

// Tokens makes and checks tokens. It is safe for concurrent use.
type Tokens struct {
	db    *ledger.DB
	vault Vault

	mu  sync.Mutex // guards key; held while the key is read or made
	key []byte     // nil until the first use
}

// New returns Tokens whose key is in this ledger.
func New(db *ledger.DB, vault Vault) *Tokens { return &Tokens{db: db, vault: vault} }

// A Grant is what a token says.
type Grant struct {
	KeyID   string    // the API key that made it
	Expires time.Time // whole seconds
}

// Sign makes a token for a port of a container.
func (t *Tokens) Sign(container string, port uint16, g Grant) (string, error) {
	key, err := t.secret(true)
	if err != nil {
		return "", err
	}
	payload := binary.BigEndian.AppendUint64(nil, uint64(g.Expires.Unix()))
	payload = append(payload, g.KeyID...)
	return encode(payload) + "." + encode(mac(key, container, port, payload)), nil
}

// Check returns what a token says if it was made for this port of this container. Its error is Unauthenticated for a
// token that was not, and Expired for one whose time is over at now.
func (t *Tokens) Check(token, container string, port uint16, now time.Time) (g Grant, err error) {
	wrong := proto.Errorf(proto.Unauthenticated, "", "token", "the token of the signed URL is not one for this port; "+
		"ask for another URL")
	first, second, ok := strings.Cut(token, ".")
	payload, perr := decode(first)
	sum, serr := decode(second)
	if !ok || len(token) > maxToken || perr != nil || serr != nil || len(payload) < timeBytes {
		return g, wrong
	}
	key, err := t.secret(false)
	if err != nil {
		return g, err
	}
	if key == nil || !hmac.Equal(sum, mac(key, container, port, payload)) {
		return g, wrong
	}
	g = Grant{KeyID: string(payload[timeBytes:]), Expires: time.Unix(int64(binary.BigEndian.Uint64(payload)), 0)}
	if !now.Before(g.Expires) {
		return g, proto.Errorf(proto.Expired, "", "token", "the signed URL expired at %s; ask for another one",
			g.Expires.UTC().Format(time.RFC3339))
	}
	return g, nil
}

// Base64url without padding, of which no text has two spellings.
var strict = base64.RawURLEncoding.Strict()

func encode(b []byte) string             { return strict.EncodeToString(b) }
func decode(text string) ([]byte, error) { return strict.DecodeString(text) }

func mac(key []byte, container string, port uint16, payload []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(purpose + container + "\x00"))
	h.Write(binary.BigEndian.AppendUint16(nil, port))
	h.Write(payload)
	return h.Sum(nil)
}

// secret returns the key. If there is none yet, it makes one or returns nil.
func (t *Tokens) secret(create bool) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.key != nil {
		return t.key, nil
	}
	var kept keyRecord
	var found bool
	if err := t.db.View(func(tx *ledger.Tx) (err error) {
		found, err = tx.Get(bucket, record, &kept)
		return err
	}); err != nil || !found && !create {
		return nil, err
	}
	if found {
		key, err := t.vault.Unseal(record, kept.Sealed)
		if err == nil {
			t.key = key
			return key, nil
		}
		if !create { // the vault's key is lost or another, and the tokens with it
			return nil, nil
		}
	}
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	sealed, err := t.vault.Seal(record, key)
	if err != nil {
		return nil, err
	}
	if err := t.db.Update(func(tx *ledger.Tx) error { return tx.Put(bucket, record, keyRecord{sealed}) }); err != nil {
		return nil, err
	}
	t.key = key
	return key, nil
}

// Reseal seals the key with a new key of the vault; see vault.Rotate.
func Reseal(db *ledger.DB, reseal vault.Resealer) (changed, closed int, err error) {
	return vault.ResealBucket(db, bucket, reseal, func(kept *keyRecord) (string, *string) {
		return record, &kept.Sealed
	})
}

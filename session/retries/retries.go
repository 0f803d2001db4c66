// Package retries knows requests that come again with an idempotency key.
//
// In scope: what identifies such a request, the wait for one that is being served, and the keyed hash of a request,
// whose key is sealed in the ledger. Out of scope: what requests make and how long a key is remembered, which package
// session, the only caller, decides.
package retries

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"

	"berth/proto"
	"berth/session/secrets"
	"berth/state/ledger"
)

// A Retry identifies a request that may come again.
type Retry struct {
	Key  string `json:"key,omitempty"`  // the client's idempotency key
	Hash string `json:"hash,omitempty"` // of the request; keyed, since requests hold secrets
}

// Same fails if two requests have the same key and differ.
func (r Retry) Same(other Retry) error {
	if r.Hash == other.Hash {
		return nil
	}
	return proto.Errorf(proto.Conflict, "", r.Key, "idempotency key %q was used for another request; use a new key "+
		"for each new request", r.Key)
}

// A Pending is a request with a key that is being served.
type Pending struct {
	Retry
	Done chan struct{} // closed when it has succeeded or failed
}

// FindOrReserve returns what an earlier request with the same key made, or nil if the caller has to make it. find
// returns that, or a request that is being served; FindOrReserve waits for the latter.
func FindOrReserve[T any](ctx context.Context, find func() (*T, *Pending, error)) (*T, error) {
	for {
		found, pending, err := find()
		if found != nil || pending == nil || err != nil {
			return found, err
		}
		select {
		case <-pending.Done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// The bucket of the ledger with the sealed key of all digests, under DigestName.
const (
	BucketDigest = "digest"
	DigestName   = "requests"
	digestBytes  = 32
)

// A Digester makes keyed hashes that stay the same under later daemons.
type Digester struct{ key []byte }

// OpenDigester loads the key of the digests. Requests hold passwords, in commands and environments. With a plain hash
// in the ledger, a reader of the ledger could guess them. If the key cannot be kept or opened, OpenDigester makes a new
// one. Earlier requests then count as different and are refused, rather than run twice.
func OpenDigester(db *ledger.DB, vault secrets.Vault, log *slog.Logger) (Digester, error) {
	var sealed string
	err := db.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(BucketDigest, DigestName, &sealed)
		return err
	})
	if err != nil {
		return Digester{}, err
	}
	if sealed != "" {
		key, err := vault.Unseal(DigestName, sealed)
		if err == nil {
			return Digester{key}, nil
		}
		log.Warn("requests with an idempotency key from before this start are not known again", "error", err)
	}
	d := Digester{make([]byte, digestBytes)}
	rand.Read(d.key) // never fails
	fresh, err := vault.Seal(DigestName, d.key)
	if err != nil || sealed != "" { // the vault's key may come back, and with it the sealed key
		return d, nil
	}
	return d, db.Update(func(tx *ledger.Tx) error { return tx.Put(BucketDigest, DigestName, fresh) })
}

// Digest returns a keyed hash of a text. Without the key it tells nothing about the text.
func (d Digester) Digest(text []byte) string {
	mac := hmac.New(sha256.New, d.key)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}

// Identify identifies a request with this key. The JSON form of request must differ for different requests.
func (d Digester) Identify(key string, request any) (Retry, error) {
	invalid := func(format string, args ...any) error {
		return proto.Errorf(proto.InvalidArgument, "", "idempotency_key", format, args...)
	}
	if len(key) > proto.MaxRetryKey {
		return Retry{}, invalid("the idempotency key has %d bytes; %d is the limit", len(key), proto.MaxRetryKey)
	}
	if !proto.ValidRetryKey(key) {
		return Retry{}, invalid("the idempotency key must be printable ASCII")
	}
	b, err := json.Marshal(request)
	if err != nil {
		return Retry{}, err
	}
	return Retry{key, d.Digest(b)}, nil
}

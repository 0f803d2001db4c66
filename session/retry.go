package session

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"berth/proto"
	"berth/session/validate"
	"berth/state/ledger"
)

// A retry identifies a request that may come again.
type retry struct {
	Key  string `json:"key,omitempty"`  // the client's idempotency key
	Hash string `json:"hash,omitempty"` // of the request; keyed, since requests hold secrets
}

// retryTime is how long an idempotency key is remembered at least. keptRetries is how many ended execs a session
// remembers for it.
const (
	retryTime   = 24 * time.Hour
	keptRetries = 1000
)

// newRetry identifies a request with this key. The JSON form of request must differ for different requests.
func (ss *Sessions) newRetry(key string, request any) (retry, error) {
	if len(key) > proto.MaxRetryKey {
		return retry{}, validate.Error("idempotency_key", "the idempotency key has %d bytes; %d is the limit", len(key),
			proto.MaxRetryKey)
	}
	if !proto.ValidRetryKey(key) {
		return retry{}, validate.Error("idempotency_key", "the idempotency key must be printable ASCII")
	}
	b, err := json.Marshal(request)
	if err != nil {
		return retry{}, err
	}
	return retry{key, ss.digest(b)}, nil
}

// same fails if two requests have the same key and differ.
func (r retry) same(other retry) error {
	if r.Hash == other.Hash {
		return nil
	}
	return proto.Errorf(proto.Conflict, "", r.Key, "idempotency key %q was used for another request; use a new key "+
		"for each new request", r.Key)
}

// A pendingRequest is an exec or a session with a key that is being started.
type pendingRequest struct {
	retry
	done chan struct{} // closed when the start has succeeded or failed
}

// findOrReserve returns what an earlier request with the same key made, or nil if the caller has to make it. find
// returns that, or a request that is being served; findOrReserve waits for the latter.
func findOrReserve[T any](ctx context.Context, find func() (*T, *pendingRequest, error)) (*T, error) {
	for {
		found, pending, err := find()
		if found != nil || pending == nil || err != nil {
			return found, err
		}
		select {
		case <-pending.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// The bucket with the sealed key of all digests, under digestName.
const (
	bucketDigest = "digest"
	digestName   = "requests"
	digestBytes  = 32
)

// openDigest loads the key of the digests that distinguish requests. Requests hold passwords, in commands and
// environments. With a plain hash in the ledger, a reader of the ledger could guess them. If the key cannot be kept
// or opened, openDigest makes a new one. Earlier requests then count as different and are refused, rather than run
// twice.
func (ss *Sessions) openDigest() error {
	var sealed string
	err := ss.cfg.Ledger.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucketDigest, digestName, &sealed)
		return err
	})
	if err != nil {
		return err
	}
	if sealed != "" {
		if ss.digestKey, err = ss.cfg.Vault.Unseal(digestName, sealed); err == nil {
			return nil
		}
		ss.cfg.Log.Warn("requests with an idempotency key from before this start are not known again", "error", err)
	}
	ss.digestKey = make([]byte, digestBytes)
	rand.Read(ss.digestKey) // never fails
	fresh, err := ss.cfg.Vault.Seal(digestName, ss.digestKey)
	if err != nil || sealed != "" { // the vault's key may come back, and with it the sealed key
		return nil
	}
	return ss.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketDigest, digestName, fresh) })
}

// digest returns a keyed hash of a text.
func (ss *Sessions) digest(text []byte) string {
	mac := hmac.New(sha256.New, ss.digestKey)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}

// Digest returns a keyed hash of a text. It stays the same under later daemons, and without the key it tells nothing
// about the text.
func (s *Session) Digest(text string) string { return s.core.digest([]byte(text)) }

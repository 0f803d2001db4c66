package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// A retry is what a request can be known by when it comes again.
type retry struct {
	Key  string `json:"key,omitempty"`  // the caller's
	Hash string `json:"hash,omitempty"` // of what was asked for: a keyed one, since that holds secrets
}

// retryTime is how long an idempotency key is remembered at least, and keptRetries how many ended execs a session
// remembers for that.
const (
	retryTime   = 24 * time.Hour
	keptRetries = 1000
)

// newRetry is how a request with this key is known again; request is anything that JSON can tell apart.
func (ss *Sessions) newRetry(key string, request any) (retry, error) {
	if len(key) > proto.MaxRetryKey {
		return retry{}, invalid("idempotency_key", "the idempotency key has %d bytes; %d is the limit", len(key),
			proto.MaxRetryKey)
	}
	if !proto.ValidRetryKey(key) {
		return retry{}, invalid("idempotency_key", "the idempotency key must be printable ASCII")
	}
	b, err := json.Marshal(request)
	if err != nil {
		return retry{}, err
	}
	return retry{key, ss.digest(b)}, nil
}

// same fails where two requests have the same key and are not the same.
func (r retry) same(other retry) error {
	if r.Hash == other.Hash {
		return nil
	}
	return proto.Errorf(proto.Conflict, "", r.Key, "idempotency key %q was used for another request; use a new key "+
		"for each new request", r.Key)
}

// A pendingRequest is an exec or a session with a key while it is being started.
type pendingRequest struct {
	retry
	done chan struct{} // closed when it has, or has not
}

// The ledger's bucket of this file: under digestName, the sealed key of all digests.
const (
	bucketDigest = "digest"
	digestName   = "requests"
	digestBytes  = 32
)

// openDigest gets the key of the digests that tell requests apart. Requests hold passwords, in commands and
// environments, and a plain hash in the ledger would let whoever reads that try words until one fits. Where the key
// cannot be kept or opened there is another one: requests of before are then refused as different ones, rather than
// run twice.
func (ss *Sessions) openDigest() error {
	var sealed string
	err := ss.cfg.Ledger.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucketDigest, digestName,
			&sealed)
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
	if err != nil || sealed != "" { // the vault's key may come back, and with it what was sealed under it
		return nil
	}
	return ss.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketDigest, digestName, fresh) })
}

// digest is the same for the same text, and tells nobody who has not the key anything about it.
func (ss *Sessions) digest(text []byte) string {
	mac := hmac.New(sha256.New, ss.digestKey)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}

// Digest is the same for the same text, also under a later daemon, and tells nobody else anything about it.
func (s *Session) Digest(text string) string { return s.core.digest([]byte(text)) }

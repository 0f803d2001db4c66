package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"berth/state/ledger"
)

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

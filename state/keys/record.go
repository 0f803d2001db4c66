package keys

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"sync/atomic"
	"time"

	"berth/proto"

	"golang.org/x/time/rate"
)

// The ledger's buckets that this package owns.
const (
	bucketKeys  = "keys"
	bucketUsage = "key_usage"
)

// secretPrefix begins every secret, so that scanners of code and logs recognise one.
const secretPrefix = "berth_"

// newSecret makes a secret of at least 128 random bits.
func newSecret() string { return secretPrefix + rand.Text() }

// A hash is the SHA-256 of a secret. A secret has too many bits to guess, so the hash needs no salt and no
// stretching.
type hash [sha256.Size]byte

func hashOf(secret string) hash { return sha256.Sum256([]byte(secret)) }

// is compares in constant time.
func (h hash) is(other hash) bool { return subtle.ConstantTimeCompare(h[:], other[:]) == 1 }

// A record is the ledger's record of a key.
type record struct {
	ID       string      `json:"id"`
	Name     string      `json:"name"`
	Owner    string      `json:"owner"`
	Hash     []byte      `json:"hash"`
	Admin    bool        `json:"admin,omitempty"`
	File     bool        `json:"file,omitempty"` // it is, or was, in the key file
	Quota    proto.Quota `json:"quota,omitzero"`
	Created  time.Time   `json:"created"`
	Expires  time.Time   `json:"expires,omitzero"` // zero: never
	LastUsed time.Time   `json:"last_used,omitzero"`
	Revoked  time.Time   `json:"revoked,omitzero"` // zero: not revoked
}

func newRecord(secret string, now time.Time) record {
	h := hashOf(secret)
	return record{ID: proto.NewID(proto.KeyPrefix), Hash: h[:], Created: now}
}

// holds reports whether the key is usable at now.
func (r record) holds(now time.Time) bool {
	return r.Revoked.IsZero() && (r.Expires.IsZero() || now.Before(r.Expires))
}

func (r record) hash() hash {
	var h hash
	copy(h[:], r.Hash)
	return h
}

func (r record) caller() proto.Caller {
	return proto.Caller{Owner: r.Owner, KeyID: r.ID, Admin: r.Admin}
}

// An entry is a key in memory. Its record is replaced whole, never changed, and guarded by Store.mu.
type entry struct {
	id      string // copy of rec's ID, readable without Store.mu
	rec     record
	used    atomic.Int64    // last use, in nanoseconds since 1970; newer than the record
	life    context.Context // ends when the key is revoked or expires
	end     context.CancelFunc
	expiry  *time.Timer                  // ends life; nil for a key without an expiry
	limiter atomic.Pointer[rate.Limiter] // Inf without a rate; never nil
}

func newEntry(rec record, now time.Time) *entry {
	e := &entry{id: rec.ID, rec: rec}
	e.limiter.Store(rate.NewLimiter(rateOf(rec.Quota)))
	e.life, e.end = context.WithCancel(context.Background())
	switch {
	case !rec.holds(now):
		e.end()
	case !rec.Expires.IsZero():
		e.expiry = time.AfterFunc(rec.Expires.Sub(now), e.end)
	}
	return e
}

// stop ends the contexts that depend on the key.
func (e *entry) stop() {
	if e.expiry != nil {
		e.expiry.Stop()
	}
	e.end()
}

// lastUsed returns when the key last authenticated a request; zero for never.
func (e *entry) lastUsed() time.Time {
	t := e.rec.LastUsed
	if n := e.used.Load(); n > 0 && time.Unix(0, n).After(t) {
		t = time.Unix(0, n)
	}
	return t
}

// info describes the key without its secret. The caller holds Store.mu.
func (e *entry) info() proto.Key {
	r := e.rec
	return proto.Key{
		ID: r.ID, Name: r.Name, Owner: r.Owner, Admin: r.Admin, File: r.File, Quota: r.Quota,
		CreatedAt: proto.At(r.Created), ExpiresAt: proto.AtOrNil(r.Expires),
		LastUsedAt: proto.AtOrNil(e.lastUsed()), RevokedAt: proto.AtOrNil(r.Revoked),
	}
}

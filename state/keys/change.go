package keys

import (
	"context"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/proto"
)

// Bounds of what a request may ask for.
const (
	maxOwner    = 64                   // bytes
	maxLifetime = 10 * 365 * 24 * 3600 // seconds
	maxCount    = 1_000_000            // sessions, requests
)

// Create makes a key and returns its secret, which is shown only this once. If the request names no owner, the key
// gets the caller's.
func (s *Store) Create(caller proto.Caller, req proto.CreateKey) (proto.NewKey, error) {
	if req.Owner == "" {
		req.Owner = caller.Owner
	}
	if err := checkCreate(req); err != nil {
		return proto.NewKey{}, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	now := s.cfg.Now()
	if n := s.usable(now); n >= maxKeys {
		return proto.NewKey{}, proto.Errorf(proto.TooMany, "", "", "this daemon has %d API keys, which is its "+
			"limit; revoke one", n).After(time.Minute)
	}
	secret := newSecret()
	rec := newRecord(secret, now)
	rec.Name, rec.Owner, rec.Admin, rec.Quota = req.Name, req.Owner, req.Admin, req.Quota
	if req.ExpiresInSeconds > 0 {
		rec.Expires = now.Add(time.Duration(req.ExpiresInSeconds) * time.Second)
	}
	if err := s.add(rec); err != nil {
		return proto.NewKey{}, err
	}
	k, err := s.Get(rec.ID)
	return proto.NewKey{Key: k, Secret: secret}, err
}

// usable counts the usable keys.
func (s *Store) usable(now time.Time) (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.byHash {
		if e.rec.holds(now) {
			n++
		}
	}
	return n
}

// Change alters a key's name or quota. A bound below the present use takes nothing away; it refuses more.
func (s *Store) Change(id string, req proto.ChangeKey) (proto.Key, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	e, err := s.find(id)
	if err != nil {
		return proto.Key{}, err
	}
	old := s.info(e)
	next := struct {
		name  string
		quota proto.Quota
	}{old.Name, old.Quota}
	if req.Name != nil {
		next.name = *req.Name
	}
	if req.Quota != nil {
		next.quota = changed(old.Quota, *req.Quota)
	}
	if err := checkName(next.name); err != nil {
		return proto.Key{}, err
	}
	if err := checkQuota(next.quota); err != nil {
		return proto.Key{}, err
	}
	if old.RevokedAt != nil {
		return proto.Key{}, proto.Errorf(proto.Conflict, "", id, "API key %s is revoked; make a new one", id)
	}
	if err := s.write(e, func(r *record) { r.Name, r.Quota = next.name, next.quota }); err != nil {
		return proto.Key{}, err
	}
	e.pace(next.quota, s.cfg.Now())
	return s.info(e), nil
}

// changed applies the changes to a quota. A burst belongs to its rate.
func changed(q proto.Quota, c proto.QuotaChange) proto.Quota {
	q = c.On(q)
	if c.Burst == nil && q.RequestsPerSecond == 0 {
		q.Burst = 0
	}
	return q
}

// Revoke ends a key for good. When it returns, the revocation is on disk, no request with the key is admitted, and
// every running one has been told to end. A second call changes nothing. It refuses the key of the key file, and the
// caller's own.
func (s *Store) Revoke(ctx context.Context, id string) (proto.Key, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	e, err := s.find(id)
	if err != nil {
		return proto.Key{}, err
	}
	switch k := s.info(e); {
	case k.RevokedAt != nil:
		return k, nil
	case k.File:
		return proto.Key{}, proto.Errorf(proto.Conflict, "", id,
			"API key %s is the one in the daemon's key file, which would otherwise lock everybody out; replace the "+
				"file and restart the daemon", id)
	case id == proto.CallerOf(ctx).KeyID:
		return proto.Key{}, proto.Errorf(proto.Conflict, "", id, "API key %s is the one that asks, which could not "+
			"be answered any more; revoke it with another admin's", id)
	}
	now := s.cfg.Now()
	if err := s.write(e, func(r *record) { r.Revoked = now }); err != nil {
		return proto.Key{}, err
	}
	return s.info(e), nil
}

func checkCreate(req proto.CreateKey) error {
	if err := checkName(req.Name); err != nil {
		return err
	}
	if !validOwner(req.Owner) {
		return proto.Invalid("owner", "owner %.80q: use 1 to %d letters, digits, '.', '-' and '_', beginning with a "+
			"letter or digit", req.Owner, maxOwner)
	}
	if req.ExpiresInSeconds < 0 || req.ExpiresInSeconds > maxLifetime {
		return proto.Invalid("expires_in_seconds",
			"expires_in_seconds must be from 1 to %d, or 0 for a key that does not expire", maxLifetime)
	}
	return checkQuota(req.Quota)
}

func checkName(name string) error {
	if len(name) > proto.MaxKeyName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return proto.Invalid("name", "name %.80q: use printable text of at most %d bytes", name, proto.MaxKeyName)
	}
	return nil
}

// validOwner limits owners to characters that need no escaping in logs, lists and ledger keys.
func validOwner(owner string) bool {
	for i, c := range []byte(owner) {
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && (i == 0 || c != '.' && c != '-' && c != '_') {
			return false
		}
	}
	return owner != "" && len(owner) <= maxOwner
}

func checkQuota(q proto.Quota) error {
	whole := func(n, most int64) bool { return n >= 0 && n <= most }
	real := func(x, least, most float64) bool { return x == 0 || x >= least && x <= most } // false for NaN
	switch {
	case !whole(q.Sessions, maxCount):
		return proto.Invalid("quota.sessions", "quota.sessions must be from 1 to %d, or 0 for no bound", maxCount)
	case !real(q.CPUSecondsPerDay, 0.001, 1e12):
		return proto.Invalid("quota.cpu_seconds_per_day",
			"quota.cpu_seconds_per_day must be from 0.001 on, or 0 for no bound")
	case !whole(q.StorageBytes, math.MaxInt64):
		return proto.Invalid("quota.storage_bytes", "quota.storage_bytes must be from 1 on, or 0 for no bound")
	case !real(q.RequestsPerSecond, 0.001, maxCount):
		return proto.Invalid("quota.requests_per_second",
			"quota.requests_per_second must be from 0.001 to %d, or 0 for no bound", maxCount)
	case !whole(q.Burst, maxCount):
		return proto.Invalid("quota.burst", "quota.burst must be from 1 to %d, or 0 for one second's worth", maxCount)
	case q.Burst > 0 && q.RequestsPerSecond == 0:
		return proto.Invalid("quota.burst", "quota.burst goes with quota.requests_per_second; set that too")
	}
	return nil
}

package logins

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// Times and bounds.
const (
	LinkTime  = time.Minute        // that a link is good for
	LoginTime = 7 * 24 * time.Hour // that a login lasts

	maxLinks  = 10  // of one key at a time; a further one replaces the oldest
	maxLogins = 100 // likewise
)

// maxSecret bounds how much of a wrong secret is hashed, in bytes.
const maxSecret = 256

// bucket is the ledger's bucket of logins, by the hash of their secrets.
const bucket = "console_logins"

// Keys are the API keys. Package keys has them.
type Keys interface {
	ByID(id string) (proto.Caller, error)
	Life(id string) context.Context
}

// A Config is what a Store needs. Ledger and Keys must be set.
type Config struct {
	Ledger *ledger.DB // must stay open until after Close
	Keys   Keys
	Now    func() time.Time // nil: time.Now
}

// A record is the ledger's record of a login.
type record struct {
	KeyID   string    `json:"key_id"`
	Admin   bool      `json:"admin,omitempty"` // an access token that asked for the link never administers
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// A link waits for its browser.
type link struct {
	record
	until time.Time
}

// A login is a record in memory. Its life ends with it.
type login struct {
	record
	life context.Context
	end  context.CancelFunc
}

// A Store has the links and the logins of a daemon. It is safe for concurrent use.
type Store struct {
	cfg Config

	changing sync.Mutex // held while the ledger writes; locked before mu

	mu     sync.Mutex // guards what follows
	links  map[string]link
	logins map[string]*login // both by the hash of their secret
}

// Open reads the logins.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, links: map[string]link{}, logins: map[string]*login{}}
	err := cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucket, "", func(hash string, r record) { s.logins[hash] = s.begin(r) })
	})
	if err != nil {
		return nil, fmt.Errorf("reading the logins of the console: %w", err)
	}
	return s, nil
}

// begin returns a login whose life ends with its key and its time.
func (s *Store) begin(r record) *login {
	life, end := context.WithDeadline(s.cfg.Keys.Life(r.KeyID), time.Now().Add(r.Expires.Sub(s.cfg.Now())))
	return &login{r, life, end}
}

func hashOf(secret string) string {
	h := sha256.Sum256([]byte(secret[:min(len(secret), maxSecret)]))
	return hex.EncodeToString(h[:])
}

// newSecret makes a secret of at least 128 random bits.
func newSecret() string { return rand.Text() }

// Link makes a link for a browser on behalf of a caller, and returns its secret.
func (s *Store) Link(c proto.Caller) (secret string, until time.Time) {
	now := s.cfg.Now()
	secret, until = newSecret(), now.Add(LinkTime)
	r := record{KeyID: c.KeyID, Admin: c.Admin, Created: now, Expires: now.Add(LoginTime)}
	if !c.Ends.IsZero() && c.Ends.Before(r.Expires) { // of an access token
		r.Expires = c.Ends
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest string
	n := 0
	for hash, l := range s.links {
		if !now.Before(l.until) {
			delete(s.links, hash)
		} else if l.KeyID == c.KeyID {
			if n++; oldest == "" || l.until.Before(s.links[oldest].until) {
				oldest = hash
			}
		}
	}
	if n >= maxLinks {
		delete(s.links, oldest)
	}
	s.links[hashOf(secret)] = link{r, until}
	return secret, until
}

// errLink is the answer to every link that is not good. It does not reveal whether the link ever was.
var errLink = proto.Errorf(proto.Unauthenticated, "", "", "This link was used, or is older than a minute; run "+
	"`berth console` again.")

// Redeem exchanges the secret of a link for that of a login, once.
func (s *Store) Redeem(secret string) (cookie string, c proto.Caller, until time.Time, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	now, hash := s.cfg.Now(), hashOf(secret)
	s.mu.Lock()
	l, found := s.links[hash]
	delete(s.links, hash)
	s.mu.Unlock()
	if !found || !now.Before(l.until) || len(secret) > maxSecret {
		return "", c, until, errLink
	}
	if c, err = s.cfg.Keys.ByID(l.KeyID); err != nil {
		return "", c, until, err
	}
	cookie = newSecret()
	drop := s.surplus(l.KeyID)
	err = s.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		for _, old := range drop {
			if err := tx.Delete(bucket, old); err != nil {
				return err
			}
		}
		return tx.Put(bucket, hashOf(cookie), l.record)
	})
	if err != nil {
		return "", c, until, fmt.Errorf("recording the login: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range drop {
		s.forget(old)
	}
	s.logins[hashOf(cookie)] = s.begin(l.record)
	c.Admin = c.Admin && l.Admin
	return cookie, c, l.Expires, nil
}

// surplus returns the oldest login of a key if it may have no further one.
func (s *Store) surplus(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest string
	n := 0
	for hash, l := range s.logins {
		if l.KeyID != key {
			continue
		}
		if n++; oldest == "" || l.Created.Before(s.logins[oldest].Created) {
			oldest = hash
		}
	}
	if n < maxLogins {
		return nil
	}
	return []string{oldest}
}

// errLogin is the answer to every secret that is not one of a login.
var errLogin = proto.Errorf(proto.Unauthenticated, "", "", "This browser is not logged in; run `berth console`.")

// Authenticate returns the caller that a login acts for, and a context that ends with the login.
func (s *Store) Authenticate(secret string) (proto.Caller, context.Context, error) {
	hash := hashOf(secret)
	s.mu.Lock()
	l := s.logins[hash] // looking up a hash takes no time that would tell of the secret
	s.mu.Unlock()
	if l == nil || l.life.Err() != nil || !s.cfg.Now().Before(l.Expires) || len(secret) > maxSecret {
		return proto.Caller{}, nil, errLogin
	}
	c, err := s.cfg.Keys.ByID(l.KeyID)
	if err != nil {
		return proto.Caller{}, nil, err
	}
	c.Admin = c.Admin && l.Admin
	return c, l.life, nil
}

// End ends a login, with all that is open in its name. An unknown one is no error.
func (s *Store) End(secret string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	hash := hashOf(secret)
	s.mu.Lock()
	_, found := s.logins[hash]
	s.mu.Unlock()
	if !found {
		return nil
	}
	err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Delete(bucket, hash) })
	if err != nil {
		return fmt.Errorf("ending the login: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(hash)
	return nil
}

// forget removes a login from memory. The caller holds mu.
func (s *Store) forget(hash string) {
	if l := s.logins[hash]; l != nil {
		l.end()
		delete(s.logins, hash)
	}
}

// Swept is what one Sweep did.
type Swept struct {
	Removed int // logins that were over
}

// Counts returns the counts by their names in logs and metrics.
func (w Swept) Counts() map[string]int { return map[string]int{"removed": w.Removed} }

// Sweep removes logins that are over.
func (s *Store) Sweep(context.Context) (Swept, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	var over []string
	s.mu.Lock()
	for hash, l := range s.logins {
		if l.life.Err() != nil || !s.cfg.Now().Before(l.Expires) {
			over = append(over, hash)
		}
	}
	s.mu.Unlock()
	if len(over) == 0 {
		return Swept{}, nil
	}
	err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		for _, hash := range over {
			if err := tx.Delete(bucket, hash); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Swept{}, fmt.Errorf("removing logins: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, hash := range over {
		s.forget(hash)
	}
	return Swept{Removed: len(over)}, nil
}

// Close ends the life of every login, which the ledger keeps.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logins {
		l.end()
	}
	return nil
}

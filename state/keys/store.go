package keys

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// DefaultOwner is the tenant of the key in the key file.
const DefaultOwner = "default"

// maxKeys bounds the usable keys, and so the memory they take.
const maxKeys = 10_000

// A Config is what a Store needs. Ledger must be set.
type Config struct {
	Ledger *ledger.DB       // must stay open until after Close
	Secret string           // of the key file; if empty, the keys of earlier key files stay revoked
	Log    *slog.Logger     // nil: no logging
	Now    func() time.Time // nil: time.Now
}

// A Store is all API keys of a daemon. It is safe for concurrent use.
type Store struct {
	cfg Config

	// changing serialises changes, so that none is based on one that then fails. It is held while the ledger writes,
	// and locked before mu.
	changing sync.Mutex

	mu     sync.RWMutex // guards what follows, and entry.rec
	byID   map[string]*entry
	byHash map[hash]*entry     // keys that are not revoked
	byName map[string][]*entry // likewise

	spending sync.Mutex // guards spent
	spent    map[string]*spent
}

// Open reads the keys, and makes Config.Secret the key of the key file.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, byID: map[string]*entry{}, byHash: map[hash]*entry{}, byName: map[string][]*entry{},
		spent: map[string]*spent{}}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("reading the API keys: %w", err)
	}
	if err := s.settleFile(cfg.Secret); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Store) load() error {
	now := s.cfg.Now()
	return s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		if err := ledger.Each(tx, bucketKeys, "", func(_ string, r record) { s.place(newEntry(r, now)) }); err != nil {
			return err
		}
		return ledger.Each(tx, bucketUsage, "", func(id string, u spent) { s.spent[id] = &u })
	})
}

// place adds an entry to the store. The caller holds mu, or has the store to itself.
func (s *Store) place(e *entry) {
	s.byID[e.rec.ID] = e
	if e.rec.Revoked.IsZero() {
		s.byHash[e.rec.hash()] = e
		s.byName[e.rec.Name] = append(s.byName[e.rec.Name], e)
	}
}

// unname takes an entry from the names. The caller holds mu.
func (s *Store) unname(e *entry) {
	name := e.rec.Name
	s.byName[name] = slices.DeleteFunc(s.byName[name], func(other *entry) bool { return other == e })
	if len(s.byName[name]) == 0 {
		delete(s.byName, name)
	}
}

// settleFile makes secret the only usable key of the key file. Keys of earlier files are revoked and stay listed,
// since the audit log and containers name them.
func (s *Store) settleFile(secret string) error {
	now := s.cfg.Now()
	h, known := hashOf(secret), false
	for _, e := range s.byID {
		if !e.rec.File || !e.rec.Revoked.IsZero() {
			continue
		}
		if secret != "" && e.rec.hash().is(h) {
			known = true
			continue
		}
		if err := s.write(e, func(r *record) { r.Revoked = now }); err != nil {
			return fmt.Errorf("revoking the replaced file key: %w", err)
		}
		s.cfg.Log.Info("the key file has another key; the old one is revoked", "key", e.rec.ID)
	}
	if known || secret == "" {
		return nil
	}
	if e := s.byHash[h]; e != nil {
		return fmt.Errorf("the key file holds %s, which was made for %s; put another key into it, or remove it, and "+
			"the next start makes one", e.rec.ID, e.rec.Owner)
	}
	rec := newRecord(secret, now)
	rec.Name, rec.Owner, rec.Admin, rec.File = "key file", DefaultOwner, true, true
	return s.add(rec)
}

// add records a new key and then makes it usable.
func (s *Store) add(rec record) error {
	if err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketKeys, rec.ID, rec) }); err != nil {
		return fmt.Errorf("recording the key: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place(newEntry(rec, s.cfg.Now()))
	return nil
}

// write changes a key's record on disk, and then in memory. The caller holds changing.
func (s *Store) write(e *entry, fn func(*record)) error {
	s.mu.RLock()
	next := e.rec
	next.LastUsed = e.lastUsed()
	s.mu.RUnlock()
	fn(&next)
	if err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketKeys, next.ID, next) }); err != nil {
		return fmt.Errorf("recording the key: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unname(e)
	e.rec = next
	if next.Revoked.IsZero() {
		s.byName[next.Name] = append(s.byName[next.Name], e)
	}
	if !next.Revoked.IsZero() && s.byHash[next.hash()] == e {
		delete(s.byHash, next.hash())
		e.stop()
	}
	return nil
}

// find returns the entry of a key, for callers that may see all keys.
func (s *Store) find(id string) (*entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.byID[id]; e != nil {
		return e, nil
	}
	return nil, proto.Errorf(proto.NotFound, "", id, "API key %.80q does not exist; list the keys there are", id)
}

// info describes a key.
func (s *Store) info(e *entry) proto.Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return e.info()
}

// Get describes a key by its ID.
func (s *Store) Get(id string) (proto.Key, error) {
	e, err := s.find(id)
	if err != nil {
		return proto.Key{}, err
	}
	return s.info(e), nil
}

// List describes all keys, including revoked ones, newest first.
func (s *Store) List() []proto.Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]proto.Key, 0, len(s.byID))
	for _, e := range s.byID {
		list = append(list, e.info())
	}
	slices.SortFunc(list, func(a, b proto.Key) int { return strings.Compare(b.ID, a.ID) })
	return list
}

// Swept is what one Sweep did.
type Swept struct {
	Noted int // keys whose last use was recorded
}

// Counts returns the counts by their names in logs and metrics.
func (w Swept) Counts() map[string]int {
	return map[string]int{
		"noted": w.Noted,
	}
}

// Sweep records when keys were last used. Doing that at each request would cost a disk sync.
func (s *Store) Sweep(context.Context) (Swept, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	var stale []record
	s.mu.RLock()
	for _, e := range s.byID {
		if t := e.lastUsed(); t.After(e.rec.LastUsed) {
			r := e.rec
			r.LastUsed = t
			stale = append(stale, r)
		}
	}
	s.mu.RUnlock()
	if len(stale) == 0 {
		return Swept{}, nil
	}
	err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		for _, r := range stale {
			if err := tx.Put(bucketKeys, r.ID, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Swept{}, fmt.Errorf("recording when keys were used: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range stale {
		s.byID[r.ID].rec.LastUsed = r.LastUsed
	}
	return Swept{Noted: len(stale)}, nil
}

// Close records the state in memory and ends every Life.
func (s *Store) Close() error {
	_, err := s.Sweep(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.byID {
		e.stop()
	}
	return err
}

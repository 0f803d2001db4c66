package files

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/state/keylock"
	"berth/state/ledger"
)

// DefaultMaxFileBytes is the hosted limit of one file: "500 MB", which we take as 500 MiB.
const DefaultMaxFileBytes = 500 << 20

// A Config configures a Store.
type Config struct {
	Dir        string     // made if missing; one Store at a time
	Ledger     *ledger.DB // stays open until after Close
	QuotaBytes int64      // per owner, of all its files together; 0 is no limit
	// bytes that the files made with an API key may have; 0 is no limit; nil: no key has a limit
	KeyQuota     func(key string) int64
	MaxFileBytes int64            // of one file; 0 is DefaultMaxFileBytes
	Now          func() time.Time // nil is time.Now
	Log          *slog.Logger     // nil logs nothing
}

// A Store holds stored files. It is safe for concurrent use.
type Store struct {
	cfg Config
	log *slog.Logger
	// contents locks each content by its hash. Between placing a content and counting it, no other goroutine may decide
	// that the content is unused.
	contents  keylock.Set
	account   account
	recovered Recovered

	mu     sync.Mutex // guards closed, and active against Close
	closed bool
	active sync.WaitGroup // uploads under way
}

// Recovered says what Open found and did.
type Recovered struct {
	Uploads int      // unfinished uploads removed
	Strays  int      // contents without a record removed
	Missing []string // IDs whose content is missing or has the wrong length: damage, so nothing is removed
}

// Open opens the store in cfg.Dir. It makes disk and ledger agree after a crash and logs what it did.
func Open(cfg Config) (*Store, error) {
	cfg.MaxFileBytes = cmp.Or(cfg.MaxFileBytes, DefaultMaxFileBytes)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, log: cfg.Log}
	for _, dir := range []string{s.tmpDir(), s.blobDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making the file store's directory: %w", err)
		}
	}
	if err := s.recover(); err != nil {
		return nil, fmt.Errorf("checking the file store: %w", err)
	}
	return s, nil
}

func (s *Store) tmpDir() string           { return filepath.Join(s.cfg.Dir, "tmp") }
func (s *Store) blobDir() string          { return filepath.Join(s.cfg.Dir, "blobs") }
func (s *Store) blobPath(h string) string { return filepath.Join(s.blobDir(), h) }

// now returns the present in the wire's resolution, so stored and shown times are equal.
func (s *Store) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Microsecond) }

// MaxFileBytes returns the maximum size of one file.
func (s *Store) MaxFileBytes() int64 { return s.cfg.MaxFileBytes }

// Recovered returns what Open found and did.
func (s *Store) Recovered() Recovered { return s.recovered }

// Close refuses new uploads and waits for those under way. The caller ends these by cancelling their contexts or
// readers.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.active.Wait()
	return nil
}

// recover removes what a crash left and sums up the usage of each owner and key.
func (s *Store) recover() error {
	uploads, err := os.ReadDir(s.tmpDir())
	if err != nil {
		return err
	}
	for _, e := range uploads {
		if err := os.RemoveAll(filepath.Join(s.tmpDir(), e.Name())); err != nil {
			return err
		}
	}
	strays, _, err := s.removeStrays(context.Background())
	if err != nil {
		return err
	}
	s.account = account{limit: s.cfg.QuotaBytes, keyLimit: s.cfg.KeyQuota, used: map[string]int64{},
		byKey: map[string]int64{}}
	var missing []string // IDs whose content is not as recorded
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucketFiles, "", func(_ string, rec record) {
			if rec.Dropped {
				return
			}
			s.account.used[rec.Owner] += rec.SizeBytes
			s.account.byKey[rec.Key] += rec.SizeBytes
			if !s.hasBlob(rec.SHA256, rec.SizeBytes) {
				missing = append(missing, rec.ID)
			}
		})
	})
	if err != nil {
		return err
	}
	s.recovered = Recovered{Uploads: len(uploads), Strays: strays, Missing: missing}
	if len(uploads)+strays > 0 {
		s.log.Info("file store: removed what a crash left", "uploads", len(uploads), "contents", strays)
	}
	for _, id := range missing {
		s.log.Error("file store: content is missing or damaged; delete the file or upload it again", "file", id)
	}
	return nil
}

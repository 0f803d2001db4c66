package files

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/proto"
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
	cfg       Config
	log       *slog.Logger
	claims    claims
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
	s := &Store{cfg: cfg.withDefaults()}
	s.log = s.cfg.Log
	s.claims.held = map[string]chan struct{}{}
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

func (c Config) withDefaults() Config {
	if c.MaxFileBytes == 0 {
		c.MaxFileBytes = DefaultMaxFileBytes
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
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
	uploads, err := removeAll(s.tmpDir())
	if err != nil {
		return err
	}
	strays, _, err := s.removeStrays(context.Background())
	if err != nil {
		return err
	}
	s.account = account{limit: s.cfg.QuotaBytes, keyLimit: s.cfg.KeyQuota, used: map[string]int64{},
		byKey: map[string]int64{}}
	missing, err := s.inspect()
	if err != nil {
		return err
	}
	s.recovered = Recovered{Uploads: uploads, Strays: strays, Missing: missing}
	if uploads+strays > 0 {
		s.log.Info("file store: removed what a crash left", "uploads", uploads, "contents", strays)
	}
	for _, id := range missing {
		s.log.Error("file store: content is missing or damaged; delete the file or upload it again", "file", id)
	}
	return nil
}

// inspect reads all records. It sums up the bytes that each owner and key uses, and returns the IDs whose content is
// not as recorded.
func (s *Store) inspect() (missing []string, err error) {
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return scanRecords(tx, func(rec record) {
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
	return missing, err
}

// removeAll empties a directory of plain files.
func removeAll(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return 0, err
		}
	}
	return len(entries), nil
}

var errClosed = proto.Errorf(proto.Unavailable, "", "", "The daemon is shutting down; try again when it is back.")

// begin registers an upload, unless the store is closed.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.active.Add(1)
	return nil
}

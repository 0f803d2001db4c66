package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"berth/files/filename"
	"berth/files/intake"
	"berth/proto"
	"berth/state/durable"
	"berth/state/ledger"
)

// The range of Upload.ExpiresIn, as hosted files have it.
const (
	MinExpiresIn = time.Hour
	MaxExpiresIn = 90 * 24 * time.Hour
)

// An Upload describes a file, except for its bytes.
type Upload struct {
	Owner        string        // required
	Filename     string        // only the last path component is kept, unless Tree is set; see filename.Clean
	Tree         bool          // Filename is a relative path that is kept; see filename.CheckPath
	MIMEType     string        // empty: detected from the content
	ExpiresIn    time.Duration // 0: kept until deleted; else MinExpiresIn to MaxExpiresIn
	Downloadable bool          // made by code rather than uploaded
	Scope        string        // container that made it
	// size if it is known in advance, so that a huge sparse file is refused early; 0: unknown
	SizeBytes int64
}

// check refuses what can be refused before the bytes arrive.
func (up Upload) check() error {
	if up.ExpiresIn != 0 && (up.ExpiresIn < MinExpiresIn || up.ExpiresIn > MaxExpiresIn) {
		return proto.Errorf(proto.InvalidArgument, "upload", "expires_in_seconds",
			"expires_in_seconds must be between %d and %d.", int(MinExpiresIn.Seconds()), int(MaxExpiresIn.Seconds()))
	}
	if err := filename.CheckMIMEType(up.MIMEType); err != nil {
		return err
	}
	_, err := up.name()
	return err
}

// name returns the name that the file keeps.
func (up Upload) name() (string, error) {
	if up.Tree {
		return up.Filename, filename.CheckPath(up.Filename)
	}
	return filename.Clean(up.Filename, up.MIMEType)
}

// A Staged file has arrived completely but is not committed. Its Upload, except for the Owner, may be filled in until
// Commit, since forms may send the file before the fields about it.
type Staged struct {
	Upload Upload

	store *Store
	key   string // API key that makes it
	path  string // in tmpDir
	size  int64
	sum   string
	head  []byte // for type detection
	held  int64  // bytes reserved in the owner's account
	done  bool
}

// A Pending file is a Staged file as an edge sees it. Stores on other machines have their own.
type Pending interface {
	ExpireIn(d time.Duration) // sets the ExpiresIn of its Upload
	Commit(ctx context.Context) (proto.StoredFile, error)
	Close()
}

// Put stores r up to its end. It fails with TooLarge or QuotaExceeded as soon as a limit is exceeded, with
// InvalidArgument for a name, type or expiry that is not allowed, or with r's error. A failed Put leaves nothing.
func (s *Store) Put(ctx context.Context, up Upload, r io.Reader) (proto.StoredFile, error) {
	if err := up.check(); err != nil {
		return proto.StoredFile{}, err
	}
	st, err := s.Stage(ctx, up, r)
	if err != nil {
		return proto.StoredFile{}, err
	}
	defer st.Close()
	return st.Commit(ctx)
}

// Stage stores r up to its end in a temporary file. The caller closes the Staged. The file counts against the quota
// of the API key that ctx has.
func (s *Store) Stage(ctx context.Context, up Upload, r io.Reader) (Pending, error) {
	if limit := s.cfg.MaxFileBytes; up.SizeBytes > limit {
		return nil, proto.Errorf(proto.TooLarge, "upload", "file", "The file has %d bytes; the limit of a stored "+
			"file is %d bytes.", up.SizeBytes, limit)
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	st := &Staged{Upload: up, store: s, key: proto.CallerOf(ctx).KeyID}
	if err := st.fill(ctx, r); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
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

// fill streams r to a temporary file. It checks the bytes against the limits as they arrive.
func (st *Staged) fill(ctx context.Context, r io.Reader) error {
	f, err := os.CreateTemp(st.store.tmpDir(), "upload-*")
	if err != nil {
		return diskError("making room for the upload", err)
	}
	defer f.Close()
	st.path = f.Name()
	st.sum, err = intake.Copy(f, r, func(p []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, limit := int64(len(p)), st.store.cfg.MaxFileBytes
		switch {
		case n == 0: // no bytes are allowed even for an owner over its quota
			return nil
		case st.size+n > limit:
			return proto.Errorf(proto.TooLarge, "upload", "file", "The file is larger than the limit of %d bytes.",
				limit)
		}
		if err := st.store.account.reserve(st.payer(), n); err != nil {
			return err
		}
		st.held, st.size = st.held+n, st.size+n
		st.head = append(st.head, p[:min(len(p), filename.SniffBytes-len(st.head))]...)
		return nil
	})
	return diskError("", err)
}

// Commit makes the file exist: first the content, then the record.
func (st *Staged) Commit(ctx context.Context) (proto.StoredFile, error) {
	rec, err := st.record()
	if err != nil {
		return proto.StoredFile{}, err
	}
	release, err := st.store.contents.Lock(ctx, rec.SHA256)
	if err != nil {
		return proto.StoredFile{}, err
	}
	err = st.publish(rec)
	release()
	if err != nil {
		st.store.dropContent(ctx, rec.SHA256)
		return proto.StoredFile{}, err
	}
	st.held = 0 // the bytes now belong to the file
	st.Close()
	return rec.stored(), nil
}

// record completes the file's record. It makes the ID last, so IDs sort by the time of the commit, however long the
// upload took.
func (st *Staged) record() (record, error) {
	up, now := st.Upload, st.store.now()
	if err := up.check(); err != nil {
		return record{}, err
	}
	if up.MIMEType == "" {
		up.MIMEType = filename.Detect(st.head, up.Filename)
	}
	name, err := up.name()
	if err != nil {
		return record{}, err
	}
	rec := record{
		ID: proto.NewID(proto.FilePrefix), Owner: up.Owner, Key: st.key, Filename: name, MIMEType: up.MIMEType,
		SizeBytes: st.size, SHA256: st.sum, CreatedAt: now, Downloadable: up.Downloadable, Scope: up.Scope,
	}
	if up.ExpiresIn > 0 {
		rec.ExpiresAt = now.Add(up.ExpiresIn)
	}
	return rec, nil
}

// publish places the content and writes the record. The caller holds the lock of the content.
func (st *Staged) publish(rec record) error {
	if err := st.store.place(st.path, rec.SHA256, rec.SizeBytes); err != nil {
		return err
	}
	return st.store.cfg.Ledger.Update(func(tx *ledger.Tx) error { return insert(tx, rec) })
}

// place moves a complete temporary file to its content's name and makes that durable. If the content exists, place
// does nothing. It replaces a damaged content, which repairs all its records.
func (s *Store) place(tmp, hash string, size int64) error {
	if s.hasBlob(hash, size) {
		return nil
	}
	if err := durable.Sync(tmp); err != nil {
		return diskError("storing the upload", err)
	}
	if err := os.Rename(tmp, s.blobPath(hash)); err != nil {
		return diskError("storing the upload", err)
	}
	if err := durable.Sync(s.blobDir()); err != nil {
		return diskError("storing the upload", err)
	}
	return nil
}

func (s *Store) hasBlob(hash string, size int64) bool {
	fi, err := os.Lstat(s.blobPath(hash))
	return err == nil && fi.Mode().IsRegular() && fi.Size() == size
}

// diskError distinguishes a full disk, which an operator can fix, from a broken one. doing is put before other errors.
func diskError(doing string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return proto.Errorf(proto.Unavailable, "upload", "",
			"The daemon's disk is full; its operator has to make room.")
	}
	if err == nil || doing == "" {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// ExpireIn sets the expiry, which a form may send after the file.
func (st *Staged) ExpireIn(d time.Duration) { st.Upload.ExpiresIn = d }

// Close removes a staged file that was not committed. It may be called after Commit, and twice.
func (st *Staged) Close() {
	if st.done {
		return
	}
	st.done = true
	if st.path != "" {
		_ = os.Remove(st.path) // if that fails, the next Open removes it
	}
	st.store.account.release(st.payer(), st.held)
	st.store.active.Done()
}

func (st *Staged) payer() payer { return payer{st.Upload.Owner, st.key} }

package files

import (
	"errors"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// The ledger's buckets that this package owns.
const (
	bucketFiles  = "files"
	bucketOwners = "file_owners"
	bucketDue    = "file_due"
	bucketBlobs  = "blobs"
)

// A record is a file's entry in the ledger.
type record struct {
	ID           string    `json:"id"`
	Owner        string    `json:"owner"`
	Key          string    `json:"key,omitempty"` // API key it was made with
	Filename     string    `json:"filename"`
	MIMEType     string    `json:"mime_type"`
	SizeBytes    int64     `json:"size_bytes"`
	SHA256       string    `json:"sha256"`
	CreatedAt    time.Time `json:"created_at"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"` // zero: never
	Downloadable bool      `json:"downloadable,omitempty"`
	Scope        string    `json:"scope,omitempty"`
	Dropped      bool      `json:"dropped,omitempty"` // expired, and Sweep has released the content
}

func (r record) stored() proto.StoredFile {
	return proto.StoredFile{
		ID: r.ID, Owner: r.Owner, Filename: r.Filename, MIMEType: r.MIMEType,
		SizeBytes: r.SizeBytes, SHA256: r.SHA256, CreatedAt: proto.At(r.CreatedAt),
		ExpiresAt: proto.AtOrNil(r.ExpiresAt), Downloadable: r.Downloadable, Scope: r.Scope,
	}
}

func (r record) payer() payer { return payer{r.Owner, r.Key} }

func (r record) expired(now time.Time) bool {
	return r.Dropped || !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

// due returns when Sweep has to process the record: to drop the content at its expiry, or to remove the record later.
func (r record) due() time.Time {
	if r.Dropped {
		return r.ExpiresAt.Add(rememberExpired)
	}
	return r.ExpiresAt
}

// dueKey returns a key that sorts by time, since the layout of the time has a fixed width.
func (r record) dueKey() string { return dueTime(r.due()) + "\x00" + r.ID }

func dueTime(t time.Time) string { return t.UTC().Format("20060102T150405.000000Z") }

// ownerKey returns the key of an owner's file. It is unambiguous for any owner, since an ID has a fixed form.
func ownerKey(owner, id string) string { return owner + "\x00" + id }

// insert writes a new record and counts its content.
func insert(tx *ledger.Tx, rec record) error {
	return errors.Join(tx.Put(bucketFiles, rec.ID, rec), tx.Put(bucketOwners, ownerKey(rec.Owner, rec.ID), rec.Scope),
		putDue(tx, rec), count(tx, rec.SHA256, +1))
}

// remove undoes insert.
func remove(tx *ledger.Tx, rec record) error {
	err := errors.Join(tx.Delete(bucketFiles, rec.ID), tx.Delete(bucketOwners, ownerKey(rec.Owner, rec.ID)),
		tx.Delete(bucketDue, rec.dueKey()))
	if err != nil || rec.Dropped {
		return err
	}
	return count(tx, rec.SHA256, -1)
}

// drop marks an expired record as one without content and sets when Sweep removes it.
func drop(tx *ledger.Tx, rec record) error {
	err := tx.Delete(bucketDue, rec.dueKey())
	rec.Dropped = true
	return errors.Join(err, tx.Put(bucketFiles, rec.ID, rec), putDue(tx, rec), count(tx, rec.SHA256, -1))
}

func putDue(tx *ledger.Tx, rec record) error {
	if rec.ExpiresAt.IsZero() {
		return nil
	}
	return tx.Put(bucketDue, rec.dueKey(), rec.ID)
}

// count changes how many records need a content.
func count(tx *ledger.Tx, hash string, by int) error {
	var n int
	if _, err := tx.Get(bucketBlobs, hash, &n); err != nil {
		return err
	}
	if n += by; n <= 0 {
		return tx.Delete(bucketBlobs, hash)
	}
	return tx.Put(bucketBlobs, hash, n)
}

// find reads an owner's record. A record of another owner is NotFound, as if it did not exist.
func find(tx *ledger.Tx, op, owner, id string) (record, error) {
	var rec record
	if !proto.ValidID(proto.FilePrefix, id) {
		return rec, notFound(op, id)
	}
	ok, err := tx.Get(bucketFiles, id, &rec)
	if err == nil && (!ok || rec.Owner != owner) {
		return record{}, notFound(op, id)
	}
	return rec, err
}

// longestShownID bounds how much of an invalid ID an error repeats.
const longestShownID = 100

func notFound(op, id string) error {
	if len(id) > longestShownID {
		id = id[:longestShownID] + "…"
	}
	return proto.Errorf(proto.NotFound, op, id, "File `%s` not found.", id)
}

package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// A Tx is a view of the ledger inside Update or View: what the database had at its last checkpoint, and over that the
// changes since.
type Tx struct {
	bolt *bbolt.DB
	read *bbolt.Tx // begun when it is needed: most updates only write
	over *node
	out  []byte // frames for the journal
	seal func(frame []byte)
}

// errReadOnly is what writing in a View fails with.
var errReadOnly = errors.New("the ledger cannot be changed in a View")

// separator stands between bucket and key where both are one string. No bucket has it in its name.
const separator = "\x00"

// run lets one update change tx. If it fails, or panics, nothing of it is left.
func (tx *Tx) run(fn func(*Tx) error) (err error) {
	over, begin := tx.over, len(tx.out)
	defer func() {
		if r := recover(); r != nil { // which must not take the others' updates with it
			err = fmt.Errorf("ledger update panicked: %v", r)
		}
		if err != nil || len(tx.out) == begin+headerSize {
			tx.over, tx.out = over, tx.out[:begin]
			return
		}
		tx.seal(tx.out[begin:])
	}()
	tx.out = append(tx.out, make([]byte, headerSize)...)
	return fn(tx)
}

// close ends the read of the database.
func (tx *Tx) close() {
	if tx.read != nil {
		_ = tx.read.Rollback()
		tx.read = nil
	}
}

// bucket is what the database has of a bucket, or nil.
func (tx *Tx) bucket(name string) (*bbolt.Bucket, error) {
	if tx.read == nil {
		var err error
		if tx.read, err = tx.bolt.Begin(false); err != nil {
			return nil, err
		}
	}
	return tx.read.Bucket([]byte(name)), nil
}

// Put stores v as JSON under key.
func (tx *Tx) Put(bucket, key string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.set(bucket, key, data)
}

// set refuses now what a checkpoint could not write later, when there is nobody to tell.
func (tx *Tx) set(bucket, key string, data []byte) error {
	switch {
	case tx.seal == nil:
		return errReadOnly
	case bucket == "" || strings.Contains(bucket, separator):
		return berrors.ErrBucketNameRequired
	case key == "":
		return berrors.ErrKeyRequired
	case len(key) > bbolt.MaxKeySize:
		return berrors.ErrKeyTooLarge
	case len(data) > bbolt.MaxValueSize:
		return berrors.ErrValueTooLarge
	}
	name := bucket + separator + key
	tx.over, tx.out = tx.over.put(name, data), appendChange(tx.out, name, data)
	return nil
}

// Get reads key into v and reports whether it was there.
func (tx *Tx) Get(bucket, key string, v any) (bool, error) {
	data, err := tx.get(bucket, key)
	if err != nil || data == nil {
		return false, err
	}
	return true, json.Unmarshal(data, v)
}

func (tx *Tx) get(bucket, key string) ([]byte, error) {
	if n := tx.over.get(bucket + separator + key); n != nil {
		return n.value, nil
	}
	b, err := tx.bucket(bucket)
	if err != nil || b == nil {
		return nil, err
	}
	return b.Get([]byte(key)), nil
}

// Delete removes key; a key that is not there is no error.
func (tx *Tx) Delete(bucket, key string) error {
	if key == "" {
		return nil
	}
	return tx.set(bucket, key, nil)
}

// DeletePrefix removes every key with this prefix.
func (tx *Tx) DeletePrefix(bucket, prefix string) error {
	var keys []string // first, since a scan must not change what it walks
	err := tx.Scan(bucket, prefix, func(k string, _ []byte) (bool, error) { keys = append(keys, k); return true, nil })
	for _, k := range keys {
		err = errors.Join(err, tx.Delete(bucket, k))
	}
	return err
}

// Each calls fn with every record whose key has this prefix, decoded, in ascending order of keys.
func Each[T any](tx *Tx, bucket, prefix string, fn func(key string, v T)) error {
	return tx.Scan(bucket, prefix, func(key string, data []byte) (bool, error) {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return false, fmt.Errorf("reading record %s/%s: %w", bucket, key, err)
		}
		fn(key, v)
		return true, nil
	})
}

// Scan calls fn for each key with this prefix in ascending order, until fn returns false or an
// error. data is JSON, valid during the call only; fn must not write to the bucket.
func (tx *Tx) Scan(bucket, prefix string, fn func(key string, data []byte) (bool, error)) error {
	b, err := tx.bucket(bucket)
	if err != nil {
		return err
	}
	var s source
	if b != nil {
		c := b.Cursor()
		s.move = c.Next
		s.key, s.data = c.Seek([]byte(prefix))
	}
	return s.merge(tx.over.from(bucket+separator+prefix, false), bucket, prefix, fn)
}

// ScanBack is Scan in descending order, starting just before key before, or at the end of
// the prefix if before is empty.
func (tx *Tx) ScanBack(bucket, prefix, before string, fn func(key string, data []byte) (bool, error)) error {
	b, err := tx.bucket(bucket)
	if err != nil {
		return err
	}
	if before == "" {
		before = prefix + "\xff\xff\xff\xff"
	}
	var s source
	if b != nil {
		c := b.Cursor()
		s.move = c.Prev
		s.key, s.data = c.Seek([]byte(before))
		if s.key == nil {
			s.key, s.data = c.Last()
		}
		for s.key != nil && string(s.key) >= before {
			s.key, s.data = c.Prev()
		}
	}
	return s.merge(tx.over.from(bucket+separator+before, true), bucket, prefix, fn)
}

// A source is where a scan is in the database.
type source struct {
	key, data []byte // nil at the end
	move      func() (key, data []byte)
}

// merge calls fn with what the source and a walk over later changes have together, in the direction of both. A change
// stands for what the source has under its key.
func (s *source) merge(w *walk, bucket, prefix string, fn func(key string, data []byte) (bool, error)) error {
	for {
		if !strings.HasPrefix(string(s.key), prefix) {
			s.key = nil
		}
		n := w.at()
		if n != nil && !strings.HasPrefix(n.key, bucket+separator+prefix) {
			n = nil
		}
		var key string
		var data []byte
		order := s.order(n, bucket, w.back)
		switch {
		case n == nil && s.key == nil:
			return nil
		case order < 0:
			key, data = string(s.key), s.data
		default:
			key, data = n.key[len(bucket)+len(separator):], n.value
		}
		if data != nil {
			if more, err := fn(key, data); err != nil || !more {
				return err
			}
		}
		if order <= 0 {
			s.key, s.data = s.move()
		}
		if order >= 0 {
			w.next()
		}
	}
}

// order says which comes first: the source's record (-1), the change n (1), or both, being of one key (0).
func (s *source) order(n *node, bucket string, back bool) int {
	switch {
	case n == nil:
		return -1
	case s.key == nil:
		return 1
	}
	order := strings.Compare(string(s.key), n.key[len(bucket)+len(separator):])
	if back {
		return -order
	}
	return order
}

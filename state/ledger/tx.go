package ledger

import (
	"berth/state/ledger/journal"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// A Tx is a view of the ledger inside Update or View: the database at its last checkpoint plus the changes since.
type Tx struct {
	bolt *bbolt.DB
	read *bbolt.Tx // opened when needed: most updates only write
	over *node
	out  []byte // frames for the journal
	seal func(frame []byte) []byte
}

// errReadOnly is the error of a write in a View.
var errReadOnly = errors.New("the ledger cannot be changed in a View")

// separator stands between bucket and key where both are one string. No bucket name contains it.
const separator = "\x00"

// run lets one update change tx. If the update fails or panics, none of its changes remain.
func (tx *Tx) run(fn func(*Tx) error) (err error) {
	over, begin := tx.over, len(tx.out)
	defer func() {
		if r := recover(); r != nil { // a panic must not discard other callers' updates
			err = fmt.Errorf("ledger update panicked: %v", r)
		}
		if err != nil || len(tx.out) == begin+journal.HeaderSize {
			tx.over, tx.out = over, tx.out[:begin]
			return
		}
		tx.out = append(tx.out[:begin], tx.seal(tx.out[begin:])...)
	}()
	tx.out = append(tx.out, make([]byte, journal.HeaderSize)...)
	return fn(tx)
}

// close ends the read of the database.
func (tx *Tx) close() {
	if tx.read != nil {
		_ = tx.read.Rollback()
		tx.read = nil
	}
}

// bucket is the database's bucket of that name, or nil.
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

// set refuses at once what a later checkpoint could not write, when no caller would learn of it.
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
	tx.over, tx.out = tx.over.put(name, data), journal.AppendChange(tx.out, name, data)
	return nil
}

// Get reads key into v and reports whether it exists.
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

// Delete removes key. A missing key is no error.
func (tx *Tx) Delete(bucket, key string) error {
	if key == "" {
		return nil
	}
	return tx.set(bucket, key, nil)
}

// DeletePrefix removes every key with this prefix.
func (tx *Tx) DeletePrefix(bucket, prefix string) error {
	var keys []string // first, because a scan must not change what it walks
	err := tx.Scan(bucket, prefix, func(k string, _ []byte) (bool, error) { keys = append(keys, k); return true, nil })
	for _, k := range keys {
		err = errors.Join(err, tx.Delete(bucket, k))
	}
	return err
}

// Each decodes every record whose key has this prefix and calls fn with it, in ascending order of keys.
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

// Scan calls fn for each key with this prefix in ascending order, until fn returns false or an error. data is JSON
// and valid during the call only. fn must not write to the bucket.
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

// ScanBack is Scan in descending order. It starts just before key before, or at the end of the prefix if before is
// empty.
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

// A source is the position of a scan in the database.
type source struct {
	key, data []byte // nil at the end
	move      func() (key, data []byte)
}

// merge calls fn with the records of the source and of a walk over later changes, in the direction of both. A change
// replaces the source's record of the same key.
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

// order says which comes first: the source's record (-1), the change n (1), or both if they have the same key (0).
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

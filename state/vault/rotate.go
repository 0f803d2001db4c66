package vault

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"io"
	"strings"

	"berth/proto"
	"berth/state/durable"
	"berth/state/ledger"
)

// A Rotation is the result of Rotate or Forget.
type Rotation struct {
	KeyID    string `json:"key_id"`   // of the key that seals now
	Keys     int    `json:"keys"`     // in the file
	Resealed int    `json:"resealed"` // records sealed again
	Closed   int    `json:"closed"`   // unchanged records that no key in the file opens
}

// A Sweeper replaces each sealed text of one kind of record with the result of reseal. It returns how many records it
// changed, and how many reseal failed for.
type Sweeper func(reseal Resealer) (changed, closed int, err error)

// Rotate makes a new key, which seals from now on, and seals all records again with it. Older keys stay in the file:
// they open older copies of the ledger. It waits for a running Rotate or Forget. It refuses a file that changed since
// the vault read it.
func (v *Vault) Rotate(all ...Sweeper) (Rotation, error) {
	v.changing.Lock()
	defer v.changing.Unlock()
	if err := v.Problem(); err != nil {
		return Rotation{}, err
	}
	data, err := v.keyFile()
	if err != nil {
		return Rotation{}, err
	}
	if len(data) > maxKeyFile-128 {
		return Rotation{}, proto.Errorf(proto.Conflict, "", "secret-key", "the file secret-key holds as many keys "+
			"as it can; have the old ones forgotten first: berth vault forget")
	}
	if err := v.replace(append(newLine(), data...)); err != nil {
		return Rotation{}, err
	}
	return v.sweep(all)
}

// Forget seals all records with the newest key, and then removes the other keys from the file. Records that only
// those open, such as in older copies of the ledger, stay closed. It waits and refuses as Rotate does.
func (v *Vault) Forget(all ...Sweeper) (Rotation, error) {
	v.changing.Lock()
	defer v.changing.Unlock()
	if err := v.Problem(); err != nil {
		return Rotation{}, err
	}
	if _, err := v.keyFile(); err != nil {
		return Rotation{}, err
	}
	done, err := v.sweep(all)
	if err != nil {
		return done, err
	}
	data, err := v.keyFile() // again: the sweep may take long
	if err != nil {
		return done, err
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	if err := v.replace(append(first, '\n')); err != nil {
		return done, err
	}
	done.Keys = 1
	return done, nil
}

// keyFile reads the key file and refuses one that differs from the vault's keys. A file made from it would lack the
// key that sealed the present records, or would begin with another.
func (v *Vault) keyFile() ([]byte, error) {
	data, err := readKey(v.path)
	if err != nil {
		return nil, err
	}
	file := &Vault{keys: map[string]cipher.AEAD{}}
	if err := file.parse(data); err != nil {
		return nil, err
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	for id := range v.keys {
		if file.keys[id] == nil { // a restart would lose it, too
			return nil, proto.Errorf(proto.Conflict, "", "secret-key", "the file secret-key was changed while the "+
				"daemon runs, and is without a key that the daemon has (%s): put that back from a backup, "+
				"then try again", id)
		}
	}
	if file.sealer != v.sealer || len(file.keys) != len(v.keys) {
		return nil, proto.Errorf(proto.Conflict, "", "secret-key", "the file secret-key was changed while the "+
			"daemon runs; restart the daemon, then try again")
	}
	return data, nil
}

func newLine() []byte {
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails
	return fmt.Appendf(nil, "%s %x\n", keyWord, key)
}

// replace makes data the key file, and its keys those of the vault. The file is on disk before a new key seals
// anything.
func (v *Vault) replace(data []byte) error {
	next := &Vault{keys: map[string]cipher.AEAD{}}
	if err := next.parse(data); err != nil {
		return err
	}
	if err := writeKeys(v.path, data); err != nil {
		return fmt.Errorf("writing the secret key: %w", err)
	}
	v.mu.Lock()
	v.keys, v.sealer = next.keys, next.sealer
	v.mu.Unlock()
	return v.db.Update(func(tx *ledger.Tx) error { return tx.Put(bucket, currentKey, keyRecord{next.sealer}) })
}

// writeKeys puts a complete file into place. It is on disk before a key in it seals anything: a secret that outlives
// its key is lost.
func writeKeys(path string, data []byte) error {
	return durable.WriteFile(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// sweep seals everything with the newest key.
func (v *Vault) sweep(all []Sweeper) (Rotation, error) {
	v.mu.RLock()
	done := Rotation{KeyID: v.sealer, Keys: len(v.keys)}
	v.mu.RUnlock()
	for _, each := range all {
		changed, closed, err := each(v.reseal)
		done.Resealed, done.Closed = done.Resealed+changed, done.Closed+closed
		if err != nil {
			return done, fmt.Errorf("sealing records anew: %w", err)
		}
	}
	return done, nil
}

// reseal seals a text with the newest key. A text under that key stays unchanged.
func (v *Vault) reseal(name, sealed string) (string, error) {
	v.mu.RLock()
	sealer := v.sealer
	v.mu.RUnlock()
	if strings.HasPrefix(sealed, sealVersion+"."+sealer+".") {
		return sealed, nil
	}
	text, err := v.Unseal(name, sealed)
	if err != nil {
		return "", err
	}
	return v.Seal(name, text)
}

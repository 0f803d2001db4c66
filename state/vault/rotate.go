package vault

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth/proto"
	"berth/state/ledger"
)

// A Rotation is what was done about keys.
type Rotation struct {
	KeyID    string `json:"key_id"`   // of the key that seals now
	Keys     int    `json:"keys"`     // in the file
	Resealed int    `json:"resealed"` // records sealed anew
	Closed   int    `json:"closed"`   // records that no key in the file opens; they are as they were
}

// A Sweeper goes through sealed records of one kind and puts what reseal gives in place of each text. It counts those
// that it changed, and those that reseal failed for.
type Sweeper func(reseal func(name, sealed string) (string, error)) (changed, closed int, err error)

// Rotate makes a new key, which seals from now on, and has all records sealed anew with it. Older keys stay in the
// file: they open copies of the ledger that were made before. It waits for a Rotate or Forget that is under way. A
// file that was changed since the vault has read it is refused.
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

// Forget has all records sealed with the newest key, and then takes the others out of the file. What only they open,
// such as older copies of the ledger, is closed from then on. It waits and refuses as Rotate does.
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

// keyFile reads the key file, and refuses one that is not what the vault has: a file made from it would begin with
// another key than all that is sealed now, or be without it.
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
				"daemon runs, and is without a key that the daemon has (%s): put that back from a backup, then try again", id)
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

// replace makes data the key file, and its keys those of the vault. The file is on disk before anything is sealed
// with what is new in it.
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

// writeKeys puts a complete file into place.
func writeKeys(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	// On disk before it has its name, and the name before anything is sealed with it: a secret
	// that outlives its key is lost.
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return ledger.SyncPath(filepath.Dir(path))
}

// sweep has everything sealed with the newest key.
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

// reseal is a text under the newest key; one that is under it already stays as it is.
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

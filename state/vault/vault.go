// Package vault seals small secrets for keeping: AES-256-GCM, under a key in a file of its own beside the ledger.
//
// The key file has a line for each key, "berth-vault-1 <64 hex digits>"; the first seals, all of them open. So a key
// can be changed by putting a new one before it and sealing anew what there is. A sealed text is "v1.<key
// id>.<base64url of nonce and ciphertext>"; it is bound to a name, such as a container's ID, and opens under no
// other. The ledger knows the ID of the key that seals, so that a file that went missing is not silently replaced by
// a new one, which would open nothing.
package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"

	"berth/proto"
	"berth/state/ledger"
)

const (
	keyWord = "berth-vault-1" // begins each line of the file
	// AES-256: the longest key that AES has.
	keyBytes = 32
	// Bytes of the key file. A line of it has 79, so this is room for some 800 keys.
	maxKeyFile  = 64 << 10
	sealVersion = "v1"
	bucket      = "vault"
	// The ledger keeps the ID alone: a copy of the ledger without the key file gives no secret
	// away.
	currentKey = "key" // the record of the ID of the key that seals
)

// A Vault seals and opens. One whose key file cannot be used fails with the reason at every use, so that the rest of
// the daemon works.
type Vault struct {
	path string
	db   *ledger.DB

	changing sync.Mutex // held for all of a Rotate or a Forget; locked before mu

	mu     sync.RWMutex           // guards keys and sealer
	keys   map[string]cipher.AEAD // by ID
	sealer string                 // ID of the one that seals
	broken error
}

// A keyRecord is what the ledger knows of the key.
type keyRecord struct {
	ID string `json:"id"`
}

// Open reads the key file, and makes it where neither it nor any record of it is there, or where it is empty: that is
// how an operator who has lost it asks for a new one. Its error is the ledger's; what is wrong with the file is in
// Problem.
func Open(path string, db *ledger.DB) (*Vault, error) {
	var known keyRecord
	if err := db.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucket, currentKey,
			&known)
		return err
	}); err != nil {
		return nil, err
	}
	v := &Vault{path: path, db: db, keys: map[string]cipher.AEAD{}}
	if v.broken = v.load(path, known); v.broken != nil || v.sealer == known.ID {
		return v, nil
	}
	return v, db.Update(func(tx *ledger.Tx) error { return tx.Put(bucket, currentKey, keyRecord{v.sealer}) })
}

// load fills the keys. A missing file is made only where the ledger knows of no key: where it
// does, there may be sealed secrets, and a new key would leave them closed without a word.
func (v *Vault) load(path string, known keyRecord) error {
	// Lstat and not Stat: a link to nowhere must not look like a missing file. What it is
	// otherwise, readKey finds out.
	fi, err := os.Lstat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && known.ID != "" {
		return unusable("it is missing")
	}
	if missing || err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
		if err := makeKey(path); err != nil {
			return fmt.Errorf("making the secret key: %w", err)
		}
	}
	data, err := readKey(path)
	if err != nil {
		return err
	}
	return v.parse(data)
}

// unusable says what is wrong with the key file and what to do.
func unusable(why string) error {
	return proto.Errorf(proto.Unavailable, "", "secret-key", "the file secret-key in the daemon's data directory "+
		"cannot be used (%s): put it back from a backup and restart the daemon; "+
		"if it is lost, put an empty file there, and the next start makes a new key, under which new secrets can be "+
		"kept and old ones stay closed", why)
}

// readKey reads the file, and refuses one that others may read: the secrets are worth no more than
// its mode.
func readKey(path string) ([]byte, error) {
	// O_NOFOLLOW so that a link cannot lead elsewhere, O_NONBLOCK so that a FIFO put there does
	// not hang the start of the daemon. That it is a plain file is asked of what was opened, not
	// of the path, which may have been swapped in between.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unusable("it cannot be opened as a file")
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return nil, unusable("it is no file")
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, unusable(fmt.Sprintf("others than its owner may read it, mode %04o; chmod 600 it",
			fi.Mode().Perm()))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, unusable("it cannot be read")
	}
	return data, nil
}

// parse reads the keys.
func (v *Vault) parse(data []byte) error {
	// One bad line makes the whole file unusable: to skip it would mean that secrets under that
	// key turn out to be lost only when someone needs them.
	for line := range strings.Lines(string(data)) {
		word, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, err := hex.DecodeString(text)
		if word != keyWord || err != nil || len(key) != keyBytes {
			return unusable("it holds something else than keys")
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return err
		}
		id := keyID(key)
		if v.sealer == "" {
			v.sealer = id
		}
		v.keys[id] = aead
	}
	if v.sealer == "" {
		return unusable("it holds no key")
	}
	return nil
}

// keyID names a key without giving it away.
func keyID(key []byte) string {
	// Eight hex digits tell the keys of one file apart and are no help in guessing 256 bits. The
	// prefix keeps the ID from being the bare hash of a key, which something else might use.
	sum := sha256.Sum256(append([]byte(keyWord+" id "), key...))
	return hex.EncodeToString(sum[:4])
}

// makeKey puts a complete file into place, so that a crash never leaves half a key, nor a ledger that knows of a key
// which is not there.
func makeKey(path string) error { return writeKeys(path, newLine()) }

// Problem is why the vault cannot be used, or nil.
func (v *Vault) Problem() error { return v.broken }

// Seal closes text under a name.
func (v *Vault) Seal(name string, text []byte) (string, error) {
	if v.broken != nil {
		return "", v.broken
	}
	v.mu.RLock()
	sealer := v.sealer
	aead := v.keys[sealer]
	v.mu.RUnlock()
	// The nonce stands before the ciphertext in one buffer that has room for both, and Seal
	// appends to it. 96 random bits do for 2³² texts under one key, far more than a ledger holds.
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(text)+aead.Overhead())
	rand.Read(nonce) // never fails
	return sealVersion + "." + sealer + "." + base64.RawURLEncoding.EncodeToString(
		aead.Seal(nonce, nonce, text, []byte(name))), nil
}

// Unseal opens what Seal closed under the same name.
func (v *Vault) Unseal(name, sealed string) ([]byte, error) {
	if v.broken != nil {
		return nil, v.broken
	}
	// Base64url has no dot, so the first two dots are the separators.
	version, rest, _ := strings.Cut(sealed, ".")
	id, text, _ := strings.Cut(rest, ".")
	v.mu.RLock()
	aead := v.keys[id]
	v.mu.RUnlock()
	switch {
	case version != sealVersion:
		return nil, damaged(name)
	case aead == nil:
		// The ID comes from the sealed text, which may be damaged: it is cut to a length that fits
		// a message.
		return nil, proto.Errorf(proto.Unavailable, "", name, "the secrets of %s were sealed with another key "+
			"(%.16s) than the file secret-key in the daemon's data directory holds: "+
			"put that key back from a backup and restart the daemon, or delete %s", name, id, name)
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) < aead.NonceSize() {
		return nil, damaged(name)
	}
	// The name is authenticated, not stored: a text that was copied to another container's record
	// fails here.
	out, err := aead.Open(nil, data[:aead.NonceSize()], data[aead.NonceSize():], []byte(name))
	if err != nil {
		return nil, damaged(name)
	}
	return out, nil
}

// damaged is Unavailable and not Internal: whoever reads it can do something about it.
func damaged(name string) error {
	return proto.Errorf(proto.Unavailable, "", name, "the sealed secrets of %s are damaged; delete it and make another",
		name)
}

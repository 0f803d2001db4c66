// Package vault seals small secrets for storage: AES-256-GCM, under a key in a file of its own beside the ledger.
//
// The key file has one line for each key, "berth-vault-1 <64 hex digits>". The first key seals; all of them open. To
// change the key, put a new one before it and seal all records again. A sealed text is "v1.<key id>.<base64url of
// nonce and ciphertext>". It is bound to a name, such as a container's ID, and opens under no other. The ledger
// records the ID of the sealing key, so a missing file is not silently replaced by a new key that opens nothing.
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
	// AES-256, the longest key of AES
	keyBytes = 32
	// Bytes of the key file. A line has 79 bytes, so there is room for about 800 keys.
	maxKeyFile  = 64 << 10
	sealVersion = "v1"
	bucket      = "vault"
	// The ledger keeps only the ID: a copy of the ledger without the key file reveals no secret.
	currentKey = "key" // the record of the ID of the key that seals
)

// A Vault seals and opens. If its key file is unusable, every use fails with the reason, and the rest of the daemon
// works.
type Vault struct {
	path string
	db   *ledger.DB

	changing sync.Mutex // held during a whole Rotate or Forget; locked before mu

	mu     sync.RWMutex           // guards keys and sealer
	keys   map[string]cipher.AEAD // by ID
	sealer string                 // ID of the sealing key
	broken error
}

// A keyRecord is the ledger's record of the key.
type keyRecord struct {
	ID string `json:"id"`
}

// Open reads the key file. It makes the file if neither the file nor a record of it exists, or if the file is empty:
// that is how an operator who lost the file asks for a new key. Open returns errors of the ledger only; Problem
// returns errors of the file.
func Open(path string, db *ledger.DB) (*Vault, error) {
	var known keyRecord
	err := db.View(func(tx *ledger.Tx) error {
		_, err := tx.Get(bucket, currentKey, &known)
		return err
	})
	if err != nil {
		return nil, err
	}
	v := &Vault{path: path, db: db, keys: map[string]cipher.AEAD{}}
	if v.broken = v.load(path, known); v.broken != nil || v.sealer == known.ID {
		return v, nil
	}
	return v, db.Update(func(tx *ledger.Tx) error { return tx.Put(bucket, currentKey, keyRecord{v.sealer}) })
}

// load reads the keys. It makes a missing file only if the ledger has no record of a key: otherwise sealed secrets
// may exist, and a new key could not open them.
func (v *Vault) load(path string, known keyRecord) error {
	// Lstat, not Stat: a dangling link must not look like a missing file. readKey checks the rest.
	fi, err := os.Lstat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && known.ID != "" {
		return unusable("it is missing")
	}
	if missing || err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
		if err := writeKeys(path, newLine()); err != nil {
			return fmt.Errorf("making the secret key: %w", err)
		}
	}
	data, err := readKey(path)
	if err != nil {
		return err
	}
	return v.parse(data)
}

// unusable describes the error of the key file and the way out.
func unusable(why string) error {
	return proto.Errorf(proto.Unavailable, "", "secret-key", "the file secret-key in the daemon's data directory "+
		"cannot be used (%s): put it back from a backup and restart the daemon; "+
		"if it is lost, put an empty file there, and the next start makes a new key, under which new secrets can be "+
		"kept and old ones stay closed", why)
}

// readKey reads the file and refuses one that other users may read.
func readKey(path string) ([]byte, error) {
	// O_NOFOLLOW: a link must not lead elsewhere. O_NONBLOCK: a FIFO must not block the daemon's start. The type is
	// checked on the open file, since the path may have been replaced meanwhile.
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
	// One bad line makes the whole file unusable: skipping it would hide that the secrets under that key are lost.
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

// keyID names a key without revealing it.
func keyID(key []byte) string {
	// Eight hex digits distinguish the keys of one file and do not help to guess 256 bits. The prefix keeps the ID
	// from being the bare hash of a key, which other software might use.
	sum := sha256.Sum256(append([]byte(keyWord+" id "), key...))
	return hex.EncodeToString(sum[:4])
}

// Problem returns why the vault is unusable, or nil.
func (v *Vault) Problem() error { return v.broken }

// Seal seals text under a name.
func (v *Vault) Seal(name string, text []byte) (string, error) {
	if v.broken != nil {
		return "", v.broken
	}
	v.mu.RLock()
	sealer := v.sealer
	aead := v.keys[sealer]
	v.mu.RUnlock()
	// The nonce precedes the ciphertext in one buffer with room for both, and Seal appends to it. 96 random bits
	// suffice for 2³² texts under one key, far more than a ledger holds.
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(text)+aead.Overhead())
	rand.Read(nonce) // never fails
	return sealVersion + "." + sealer + "." + base64.RawURLEncoding.EncodeToString(
		aead.Seal(nonce, nonce, text, []byte(name))), nil
}

// Unseal opens a text that Seal returned for the same name.
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
		// The ID comes from the sealed text, which may be damaged: it is cut to a length that fits a message.
		return nil, proto.Errorf(proto.Unavailable, "", name, "the secrets of %s were sealed with another key "+
			"(%.16s) than the file secret-key in the daemon's data directory holds: "+
			"put that key back from a backup and restart the daemon, or delete %s", name, id, name)
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) < aead.NonceSize() {
		return nil, damaged(name)
	}
	// The name is authenticated, not stored: a text copied to another container's record fails here.
	out, err := aead.Open(nil, data[:aead.NonceSize()], data[aead.NonceSize():], []byte(name))
	if err != nil {
		return nil, damaged(name)
	}
	return out, nil
}

// damaged returns Unavailable, not Internal: the reader of the message can act on it.
func damaged(name string) error {
	return proto.Errorf(proto.Unavailable, "", name, "the sealed secrets of %s are damaged; delete it and make another",
		name)
}

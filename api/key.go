package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"berth/proto"
)

// DefaultOwner is who owns everything where there is but one API key.
const DefaultOwner = "default"

const (
	keyPrefix    = "berth_"
	minKeyLength = 16
	maxKeyLength = 4096
)

// A SingleKey is an Authenticator with one key, of DefaultOwner.
type SingleKey struct {
	sum [sha256.Size]byte // keys are compared by hash, so that not even their length shows in time
}

// NewSingleKey knows key.
func NewSingleKey(key string) SingleKey { return SingleKey{sha256.Sum256([]byte(key))} }

// Authenticate fails with Unauthenticated for every other key.
func (k SingleKey) Authenticate(_ context.Context, key string) (Caller, error) {
	sum := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare(sum[:], k.sum[:]) != 1 {
		return Caller{}, proto.Errorf(proto.Unauthenticated, "", "", "Invalid API key.")
	}
	return Caller{Owner: DefaultOwner, KeyID: "key_" + hex.EncodeToString(k.sum[:4]), Admin: true}, nil
}

// ReadKeyFile reads the key in the file path, which is made with a new key if there is none. It
// refuses a file that others may read or that holds no usable key, and says how to mend it.
func ReadKeyFile(path string) (SingleKey, error) {
	if err := makeKeyFile(path); err != nil {
		return SingleKey{}, fmt.Errorf("making the API key: %w", err)
	}
	key, err := readKey(path)
	if err != nil {
		return SingleKey{}, fmt.Errorf("the API key file %s: %w", path, err)
	}
	return NewSingleKey(key), nil
}

// makeKeyFile links a complete file into place, so that a crash never leaves half a key.
func makeKeyFile(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".api-key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := io.WriteString(f, keyPrefix+rand.Text()+"\n"); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func readKey(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return "", errors.New("it is a symbolic link; put the file itself there")
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() {
		return "", errors.New("it is not a file; remove it, and the next start makes one")
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("others than its owner may use it (mode %04o); if nobody has, run chmod 600 on it, else remove it, and the next start makes a new key", fi.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyLength+1))
	if err != nil {
		return "", err
	}
	return checkKey(strings.TrimSpace(string(data)))
}

func checkKey(key string) (string, error) {
	unprintable := strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
	if len(key) < minKeyLength || len(key) > maxKeyLength || unprintable {
		return "", fmt.Errorf("it holds no key of %d to %d printable characters; remove it, and the next start makes one", minKeyLength, maxKeyLength)
	}
	return key, nil
}

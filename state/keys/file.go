package keys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// minSecret is the minimum length of a key in the key file, in characters.
const minSecret = 16

// NoGroup stands for no group in ReadFile.
const NoGroup = -1

// ReadFile reads the key in the file at path. It makes the file with a new key if there is none. It refuses a file
// that others may read or that holds no usable key, and says how to fix it. The members of a group, by its ID, may read
// the file: a file that only its owner could read is opened to them.
func ReadFile(path string, group int) (secret string, err error) {
	if err := makeFile(path); err != nil {
		return "", fmt.Errorf("making the API key: %w", err)
	}
	if secret, err = readSecret(path, group); err != nil {
		return "", fmt.Errorf("the API key file %s: %w", path, err)
	}
	return secret, nil
}

// makeFile links a complete file into place, so that a crash never leaves half a key.
func makeFile(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".api-key-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := io.WriteString(f, newSecret()+"\n"); err != nil {
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

func readSecret(path string, group int) (string, error) {
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
	shared := isOf(fi, group)
	if fi.Mode().Perm()&0o077 != 0 && !(shared && fi.Mode().Perm() == sharedMode) {
		return "", fmt.Errorf("others than its owner may use it (mode %04o); if nobody has, run chmod 600 on it, "+
			"else remove it, and the next start makes a new key", fi.Mode().Perm())
	}
	if group != NoGroup && fi.Mode().Perm() != sharedMode {
		// The group first: with the other order, a group that is no business of ours could read the key meanwhile.
		if err := errors.Join(f.Chown(-1, group), f.Chmod(sharedMode)); err != nil {
			return "", fmt.Errorf("opening it to the group: %w", err)
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	return checkSecret(strings.TrimSpace(string(data)))
}

// sharedMode is the mode of a key file that a group may read.
const sharedMode fs.FileMode = 0o640

// isOf reports whether a file belongs to a group.
func isOf(fi fs.FileInfo, group int) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && group != NoGroup && int64(st.Gid) == int64(group)
}

func checkSecret(key string) (string, error) {
	unprintable := strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' })
	if len(key) < minSecret || len(key) > maxSecret || unprintable {
		return "",
			fmt.Errorf("it holds no key of %d to %d printable characters; remove it, and the next start makes one",
				minSecret, maxSecret)
	}
	return key, nil
}

package keys

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// maxPairs bounds a file of provider keys, in bytes.
const maxPairs = 64 << 10

// ReadPairs reads a file of keys that the daemon uses at other services: one NAME=KEY per line. It skips empty lines
// and lines that begin with #. what names the kind of keys in messages; check may refuse a pair. A file that users
// other than its owner may read is refused.
func ReadPairs(path, what string, check func(name, key string) error) (map[string]string, error) {
	pairs, err := readPairs(path, check)
	if err != nil {
		return nil, fmt.Errorf("the file of %s %s: %w", what, path, err)
	}
	return pairs, nil
}

func readPairs(path string, check func(name, key string) error) (map[string]string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: a FIFO must not block the start
	var pe *os.PathError
	if errors.As(err, &pe) {
		return nil, pe.Err
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others than its owner may read it, mode %04o; chmod 600 it", fi.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxPairs+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPairs {
		return nil, fmt.Errorf("it has more than %d bytes", maxPairs)
	}
	return parsePairs(data, check)
}

// parsePairs identifies lines in errors by number only: a mistyped line may be a key.
func parsePairs(data []byte, check func(name, key string) error) (map[string]string, error) {
	pairs := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxPairs+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, key, _ := strings.Cut(line, "=")
		name, key = strings.TrimSpace(name), strings.TrimSpace(key)
		if err := check(name, key); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("line %d: what is behind the = is no key", n)
		}
		if _, twice := pairs[name]; twice {
			return nil, fmt.Errorf("line %d: its name is there twice", n)
		}
		pairs[name] = key
	}
	return pairs, lines.Err()
}

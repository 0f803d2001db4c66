package access

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// userSpace begins the names of extended attributes that any owner of a file may set.
const userSpace = "user."

// Attributes returns the extended attributes of the user's space of a file, without that prefix. A file system that has
// none, a file that may not be read, and values that are no text, count as none. Links have none.
func Attributes(path string) (out map[string]string) {
	names := attributeNames(func(list []byte) (int, error) { return unix.Llistxattr(path, list) })
	left := wire.MaxAttributes
	for _, name := range names {
		value := make([]byte, max(0, left-len(name)))
		n, err := unix.Lgetxattr(path, userSpace+name, value)
		if err != nil || n > len(value) || !utf8.Valid(value[:n]) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = string(value[:n])
		left -= len(name) + n
	}
	return out
}

// attributeNames lists the attributes of the user's space with a system call that fills a list of names.
func attributeNames(fill func(list []byte) (int, error)) (names []string) {
	n, err := fill(nil)
	if err != nil || n <= 0 {
		return nil
	}
	list := make([]byte, n)
	if n, err = fill(list); err != nil {
		return nil
	}
	for full := range strings.SplitSeq(string(list[:n]), "\x00") {
		if name, ok := strings.CutPrefix(full, userSpace); ok && utf8.ValidString(name) {
			names = append(names, name)
		}
	}
	return names
}

// SetAttributes gives the file the attributes of set, and removes all others whose names begin like them. It makes no
// call that would change nothing, so that who watches the file does not hear of it. nil changes nothing.
func (w *InPlace) SetAttributes(set *proto.Attributes) error {
	if set == nil {
		return nil
	}
	fd := int(w.Fd())
	return wire.FileError(wire.OpWrite, w.Name(), w.id.Do(func() error {
		for _, name := range attributeNames(func(list []byte) (int, error) { return unix.Flistxattr(fd, list) }) {
			short, ours := strings.CutPrefix(name, set.Prefix)
			if _, stays := set.Values[short]; stays || !ours {
				continue
			}
			if err := unix.Fremovexattr(fd, userSpace+name); err != nil && !errors.Is(err, unix.ENODATA) {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(set.Values)) {
			if err := unix.Fsetxattr(fd, userSpace+set.Prefix+name, []byte(set.Values[name]), 0); err != nil {
				return err
			}
		}
		return nil
	}))
}

package egress

import (
	"bytes"
	"io"
	"slices"
)

// A veiled body is one in which words are replaced while it streams. It holds back no more than what may be the beginning of a word, so that an
// event is passed on when it has come.
type veiled struct {
	body io.ReadCloser
	veil *veil
	read [16 << 10]byte
	kept []byte // read, and not yet known to be no word
	out  []byte // to be given
	err  error  // comes after out
}

func (b *veiled) Close() error { return b.body.Close() }

func (b *veiled) Read(p []byte) (int, error) {
	for len(b.out) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		n, err := b.body.Read(b.read[:])
		b.kept, b.err = append(b.kept, b.read[:n]...), err
		b.sift()
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}

// sift moves what is known from kept to out.
func (b *veiled) sift() {
	b.out = b.out[:0]
	for {
		at, w := b.first()
		if at < 0 || b.err == nil && b.mayGrow(at) {
			break
		}
		b.out = append(append(b.out, b.kept[:at]...), w.with...)
		b.kept = b.kept[at+len(w.find):]
	}
	hold := 0
	if b.err == nil {
		hold = b.begun()
		if at, _ := b.first(); at >= 0 { // it may be the beginning of a longer one
			hold = len(b.kept) - at
		}
	}
	b.out = append(b.out, b.kept[:len(b.kept)-hold]...)
	b.kept = append([]byte(nil), b.kept[len(b.kept)-hold:]...)
}

// mayGrow reports whether what begins at that place, and goes on to the end, may be more of a word than it is yet.
func (b *veiled) mayGrow(at int) bool {
	rest := b.kept[at:]
	return slices.ContainsFunc(b.veil.words, func(w word) bool { return len(w.find) > len(rest) && bytes.HasPrefix(w.find, rest) })
}

// first is where the first word is, the longest of those that begin there; -1 if there is none.
func (b *veiled) first() (at int, found word) {
	at = -1
	for _, w := range b.veil.words {
		i := bytes.Index(b.kept, w.find)
		if i >= 0 && (at < 0 || i < at || i == at && len(w.find) > len(found.find)) {
			at, found = i, w
		}
	}
	return at, found
}

// begun is how many bytes at the end of kept may be the beginning of a word.
func (b *veiled) begun() (most int) {
	for _, w := range b.veil.words {
		for n := min(len(w.find)-1, len(b.kept)); n > most; n-- {
			if bytes.HasSuffix(b.kept, w.find[:n]) {
				most = n
			}
		}
	}
	return most
}

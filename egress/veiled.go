package egress

import (
	"io"
	"net/http"
)

// A veil has placeholders again in the place of secrets that a host repeats, such as in "invalid key sk-…": what a
// model reads is not to have them. It does not keep a host that means to tell from telling, in another form. A nil
// veil hides nothing.
type veil struct {
	parts []*finder
	hides []bool // by a secret's number
}

// word is one by its number among those of all parts, counted from 1.
func (v *veil) word(number uint16) *word {
	i := int(number) - 1
	for _, f := range v.parts {
		if i < len(f.words) {
			return &f.words[i]
		}
		i -= len(f.words)
	}
	return nil
}

// A sieve replaces words in one text: of those that begin first the longest. It holds back no more than what may be
// the beginning of a word.
type sieve struct {
	veil  *veil
	at    []int32  // where each of the veil's parts is
	kept  []byte   // taken, and not yet known to be no word
	found []uint16 // for each byte of kept, the longest word that begins there; 0 is none
	out   []byte   // to be given
}

func (v *veil) sieve() sieve { return sieve{veil: v, at: make([]int32, len(v.parts))} }

// take looks at more of the text, and moves what is known to out. With last it is all known.
func (s *sieve) take(p []byte, last bool) {
	from := len(s.kept)
	s.kept, s.found = append(s.kept, p...), append(s.found, make([]uint16, len(p))...)
	for i, c := range p {
		base := uint16(0)
		for part, f := range s.veil.parts {
			s.at[part] = f.step(s.at[part], c)
			s.note(f, f.nodes[s.at[part]].word, base, from+i+1)
			base += uint16(len(f.words))
		}
	}
	s.settle(last)
}

// note has it which words end there, from number n on. Each is longer than what began where it does and ended before.
func (s *sieve) note(f *finder, n, base uint16, end int) {
	for length := 0; n != 0; n = f.words[n-1].next {
		w := &f.words[n-1]
		if len(w.find) != length && (w.secret < 0 || s.veil.hides[w.secret]) { // of the same text the first stands
			length = len(w.find)
			s.found[end-length] = base + n
		}
	}
}

func (s *sieve) settle(last bool) {
	i, known := 0, s.known(0, last)
	for i < known {
		if s.found[i] == 0 {
			s.out = append(s.out, s.kept[i])
			i++
			continue
		}
		w := s.veil.word(s.found[i])
		s.out = append(s.out, w.with...)
		if i += len(w.find); i > known {
			known = s.known(i, last)
		}
	}
	if i == len(s.kept) {
		i, s.kept, s.found = 0, s.kept[:0], s.found[:0]
	}
	s.kept, s.found = s.kept[i:], s.found[i:]
}

// known is up to where no word can begin that is not whole, when what is before i has gone. No part looks back at
// that any more.
func (s *sieve) known(i int, last bool) int {
	known := len(s.kept)
	for part, f := range s.veil.parts {
		s.at[part] = f.open(s.at[part], len(s.kept)-i)
		if !last {
			known = min(known, len(s.kept)-f.depth(s.at[part]))
		}
	}
	return known
}

// hide is a text with its secrets hidden.
func (v *veil) hide(text string) string {
	s := v.sieve()
	s.take([]byte(text), true)
	return string(s.out)
}

// takeOut hides the secrets in an answer. A body that is packed, though nobody asked for that, passes as it is.
func (v *veil) takeOut(res *http.Response) {
	if v == nil {
		return
	}
	for _, lines := range res.Header {
		for i := range lines {
			lines[i] = v.hide(lines[i])
		}
	}
	res.Status, res.Trailer = v.hide(res.Status), nil // trailers come when the body has been looked through
	coding := res.Header.Get("Content-Encoding")
	if res.StatusCode == http.StatusSwitchingProtocols || res.Body == http.NoBody || coding != "" &&
		coding != "identity" || res.Request.Method == http.MethodHead {
		return
	}
	res.Body, res.ContentLength = v.over(res.Body), -1
}

// A veiled body is one in which words are replaced while it streams, so that an event is passed on when it has come.
type veiled struct {
	sieve
	body io.ReadCloser
	read [16 << 10]byte
	rest []byte // of out
	err  error  // comes after it
}

func (v *veil) over(body io.ReadCloser) *veiled { return &veiled{sieve: v.sieve(), body: body} }

func (b *veiled) Close() error { return b.body.Close() }

func (b *veiled) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		var n int
		n, b.err = b.body.Read(b.read[:])
		b.out = b.out[:0]
		b.take(b.read[:n], b.err != nil)
		b.rest = b.out
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

package placeholder

import (
	"io"
	"net/http"
)

// A Redactor replaces secrets in a host's answer by their placeholders, as in "invalid key sk-…": a model must not
// read them. It cannot stop a host that leaks them deliberately in another form. A nil Redactor hides nothing.
type Redactor struct {
	parts []*matcher
	hides []bool // by a secret's number
}

// word returns a word by its number among those of all parts, counted from 1.
func (v *Redactor) word(number uint16) *word {
	i := int(number) - 1
	for _, f := range v.parts {
		if i < len(f.words) {
			return &f.words[i]
		}
		i -= len(f.words)
	}
	return nil
}

// A sieve replaces words in one text. Among overlapping words the first wins, then the longest. It holds back only
// what may be the beginning of a word.
type sieve struct {
	redactor *Redactor
	at       []int32  // position in each part of the redactor
	kept     []byte   // read, and possibly part of a word
	found    []uint16 // for each byte of kept, the longest word that begins there; 0 is none
	out      []byte   // ready for the caller
}

func (v *Redactor) sieve() sieve { return sieve{redactor: v, at: make([]int32, len(v.parts))} }

// take reads more of the text and moves what is settled to out. With last, everything is.
func (s *sieve) take(p []byte, last bool) {
	from := len(s.kept)
	s.kept, s.found = append(s.kept, p...), append(s.found, make([]uint16, len(p))...)
	for i, c := range p {
		base := uint16(0)
		for part, f := range s.redactor.parts {
			s.at[part] = f.step(s.at[part], c)
			s.note(f, f.nodes[s.at[part]].word, base, from+i+1)
			base += uint16(len(f.words))
		}
	}
	s.settle(last)
}

// note records the words that end here, from number n on. Each is longer than a word found earlier at the same start.
func (s *sieve) note(f *matcher, n, base uint16, end int) {
	for length := 0; n != 0; n = f.words[n-1].next {
		w := &f.words[n-1]
		if len(w.find) != length && (w.secret < 0 || s.redactor.hides[w.secret]) { // of equal texts the first counts
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
		w := s.redactor.word(s.found[i])
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

// known returns the position before which every word is complete, once everything before i has gone. No part looks
// back further.
func (s *sieve) known(i int, last bool) int {
	known := len(s.kept)
	for part, f := range s.redactor.parts {
		s.at[part] = f.open(s.at[part], len(s.kept)-i)
		if !last {
			known = min(known, len(s.kept)-f.depth(s.at[part]))
		}
	}
	return known
}

// hide returns a text with its secrets hidden.
func (v *Redactor) hide(text string) string {
	s := v.sieve()
	s.take([]byte(text), true)
	return string(s.out)
}

// Redact hides the secrets in an answer. A compressed body, which was not asked for, passes unchanged.
func (v *Redactor) Redact(res *http.Response) {
	if v == nil {
		return
	}
	for _, lines := range res.Header {
		for i := range lines {
			lines[i] = v.hide(lines[i])
		}
	}
	res.Status, res.Trailer = v.hide(res.Status), nil // trailers follow when the body has been searched
	coding := res.Header.Get("Content-Encoding")
	if res.StatusCode == http.StatusSwitchingProtocols || res.Body == http.NoBody || coding != "" &&
		coding != "identity" || res.Request.Method == http.MethodHead {
		return
	}
	res.Body, res.ContentLength = &redactedBody{sieve: v.sieve(), body: res.Body}, -1
}

// A redactedBody replaces words while it streams. An event is passed on as soon as it has arrived.
type redactedBody struct {
	sieve
	body io.ReadCloser
	read [16 << 10]byte
	rest []byte // of out
	err  error  // returned after it
}

func (b *redactedBody) Close() error { return b.body.Close() }

func (b *redactedBody) Read(p []byte) (int, error) {
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

package placeholder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"berth/egress"
)

// redactorOf replaces each text by its number.
func redactorOf(texts ...string) *Redactor {
	var words []word
	for i, text := range texts {
		words = append(words, word{find: []byte(text), with: fmt.Appendf(nil, "<%d>", i+1), secret: -1})
	}
	return &Redactor{parts: []*matcher{newMatcher(words)}}
}

// bodyOf returns a body with its secrets hidden.
func (v *Redactor) bodyOf(body io.ReadCloser) io.Reader {
	return &redactedBody{sieve: v.sieve(), body: body}
}

// TestRedactedBody checks that the pieces in which a body arrives do not change the result.
func TestRedactedBody(t *testing.T) {
	v := redactorOf("abcab", "abcabcd", "cab ")
	text := "abcab xabcabcd abca bcab abcabcabcab ab"
	want := "<1> x<2> abca b<3><1>c<1> ab"
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)),
		iotest.HalfReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
		got, err := io.ReadAll(v.bodyOf(io.NopCloser(r)))
		if err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	long := bytes.Repeat([]byte("0123456789abcab"), 10_000)
	got, err := io.ReadAll(v.bodyOf(io.NopCloser(bytes.NewReader(long))))
	if err != nil || string(got) != strings.ReplaceAll(string(long), "abcab", "<1>") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := io.ReadAll(v.bodyOf(io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)))); err != io.ErrUnexpectedEOF {
		t.Errorf("a broken body: %v", err)
	}
}

// TestRedactorOfSome checks that only secrets that go to the host are hidden in its answer.
func TestRedactorOfSome(t *testing.T) {
	shared := newMatcher([]word{{find: []byte("same"), with: []byte("<1>"), secret: 0},
		{find: []byte("same"), with: []byte("<2>"), secret: 1}, {find: []byte("samest"), with: []byte("<3>"),
			secret: 0}})
	own := newMatcher([]word{{find: []byte("the same"), with: []byte("<4>"), secret: -1}})
	for _, tt := range []struct {
		hides []bool
		want  string
	}{{[]bool{true, true}, "<3> <1> <4>"}, {[]bool{false, true}, "<2>st <2> <4>"},
		{[]bool{false, false}, "samest same <4>"}} {
		v := &Redactor{parts: []*matcher{shared, own}, hides: tt.hides}
		if got := v.hide("samest same the same"); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.hides, got, tt.want)
		}
	}
}

// plainly is a simple reference implementation of a redactor. It replaces, from left to right, the longest word that
// begins at each position. It holds back text that may be the beginning of a word, unless last is set.
func plainly(texts []string, text string, last bool) string {
	var out strings.Builder
	for text != "" {
		longest := -1
		for i, w := range texts {
			switch {
			case !last && len(w) > len(text) && strings.HasPrefix(w, text):
				return out.String()
			case strings.HasPrefix(text, w) && (longest < 0 || len(w) > len(texts[longest])):
				longest = i
			}
		}
		if longest < 0 {
			out.WriteByte(text[0])
			text = text[1:]
			continue
		}
		fmt.Fprintf(&out, "<%d>", longest+1)
		text = text[len(texts[longest]):]
	}
	return out.String()
}

// FuzzRedactedBody compares the redactor with plainly, for texts in pieces of any size.
func FuzzRedactedBody(f *testing.F) {
	f.Add("abcab abcabcd", "abcab xabcabcd abca bcab", uint8(1))
	f.Add("abcd bc cde", "zabcabcdebc", uint8(2))
	f.Add("aaaa aaaaaaaab aaaaa", "aaaaaaaaaaaaaaaaaaaaabaaaa", uint8(3))
	f.Add("ab ab b babab", "abbababbabaabab", uint8(5))
	f.Fuzz(func(t *testing.T, words, text string, piece uint8) {
		texts := strings.Fields(words)
		if len(texts) > 100 || len(text) > 1000 {
			return
		}
		if piece%2 == 1 {
			slices.Sort(texts)
			texts = slices.Compact(texts)
		}
		v := redactorOf(texts...)
		if cut := len(texts) / 2; piece%2 == 1 { // the result is the same if the words are in two parts
			all := v.parts[0].words
			for i := range all {
				all[i].next = 0
			}
			v.parts = []*matcher{newMatcher(all[:cut]), newMatcher(all[cut:])}
		}
		s := v.sieve()
		for at := 0; at < len(text); {
			end := min(at+1+int(piece), len(text))
			s.take([]byte(text[at:end]), false)
			at = end
			if want := plainly(texts, text[:at], false); string(s.out) != want {
				t.Fatalf("%q of %q: %q, want %q", texts, text[:at], s.out, want)
			}
		}
		s.take(nil, true)
		if want := plainly(texts, text, true); string(s.out) != want {
			t.Fatalf("%q of %q: %q, want %q", texts, text, s.out, want)
		}
		if got := v.hide(text); got != string(s.out) {
			t.Fatalf("%q of %q at once: %q, want %q", texts, text, got, s.out)
		}
	})
}

// heavy returns secrets and texts that make a naive search slow.
func heavy() map[string]struct {
	secrets []string
	text    []byte
} {
	type load = struct {
		secrets []string
		text    []byte
	}
	rare, nested, near := []string{"aaaa"}, []string{}, []string{}
	for i := range maxSecrets - 1 {
		rare = append(rare, fmt.Sprintf(`aaa"< >%02d`, i)+strings.Repeat("a", 20))
		nested = append(nested, strings.Repeat("a", minSecretValue+i))
		near = append(near, strings.Repeat("a", 4000)+`"< >`+strings.Repeat("a", 4000-i))
	}
	near = append(near, strings.Repeat("a", maxSecretValue-1)+`"`)
	text := bytes.Repeat([]byte("a"), 256<<10)
	return map[string]load{"a short one among many": {rare, text}, "one in another": {nested, text},
		"almost": {near, text}, "not at all": {rare, bytes.Repeat([]byte("0123456789"), 26<<10)}}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// redactorFor hides the secrets of a container.
func redactorFor(secrets []string) *Redactor {
	var list []egress.Secret
	hides := make([]bool, len(secrets))
	for i, text := range secrets {
		list, hides[i] = append(list, egress.Secret{Value: text, Placeholder: "berth-secret-0123456789"}), true
	}
	return &Redactor{parts: []*matcher{New(list).matcher()}, hides: hides}
}

// TestRedactionTakesNoTime checks that the choice of secrets, answer and pieces cannot make the redactor slow. A
// search for each word separately took minutes.
func TestRedactionTakesNoTime(t *testing.T) {
	for name, load := range heavy() {
		t.Run(name, func(t *testing.T) {
			v := redactorFor(load.secrets)
			for what, text := range map[string]io.Reader{"whole": bytes.NewReader(load.text),
				"byte by byte": iotest.OneByteReader(bytes.NewReader(load.text))} {
				began := time.Now()
				r := readFunc(func(p []byte) (int, error) {
					if time.Since(began) > 20*time.Second {
						return 0, errors.New("it takes too long")
					}
					return text.Read(p)
				})
				if _, err := io.Copy(io.Discard, v.bodyOf(io.NopCloser(r))); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

func BenchmarkRedactedBody(b *testing.B) {
	for name, load := range heavy() {
		b.Run(name, func(b *testing.B) {
			v := redactorFor(load.secrets)
			b.SetBytes(int64(len(load.text)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = io.Copy(io.Discard, v.bodyOf(io.NopCloser(bytes.NewReader(load.text))))
			}
		})
	}
}

func BenchmarkFinder(b *testing.B) {
	var most []string
	for i := range maxSecrets {
		// no byte has longer encoded forms
		most = append(most, fmt.Sprintf("%02d ", i)+strings.Repeat("<", maxSecretValue-3))
	}
	b.ReportAllocs()
	for b.Loop() {
		redactorFor(most)
	}
}

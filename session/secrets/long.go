package secrets

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
)

// leastRun is how many bytes in a row a text must share with a long secret to have them hidden. A piece that was cut
// out of the secret has them, unless it is shorter.
const leastRun = 2 * shortest

// AndLong returns a Redactor that also hides parts of secrets that may be longer than the texts. The work for a text
// grows with the length of text and secrets together, and nothing is made of the secrets before.
func (v *Redactor) AndLong(secrets []string) *Redactor {
	if len(secrets) == 0 {
		return v
	}
	with := Redactor{words: strings.NewReplacer()}
	if v != nil {
		with = *v
	}
	with.long, with.longest = secrets, max(with.longest, leastRun)
	return &with
}

// A search looks for what a text shares with secrets.
type search struct {
	text  string
	runs  map[string]bool // each leastRun bytes of the text, and whether a secret has them
	begin [1 << 16]bool   // by hash of their first bytes, since most parts of a secret are in no text
	lines []string        // short lines of secrets that are in the text, each with its replacement
}

// hash needs four bytes.
func hash(text string) uint16 {
	n := uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24
	return uint16(n * 0x9E3779B1 >> 16)
}

// hideLong hides in a text what it shares with long secrets: runs of bytes, also in encodings, and whole lines.
func hideLong(text string, secrets []string) string {
	if len(text) < shortest {
		return text
	}
	s := search{text: text, runs: map[string]bool{}}
	for i := 0; i+shortest <= len(text); i++ {
		s.begin[hash(text[i:])] = true
		if i+leastRun <= len(text) {
			s.runs[text[i:i+leastRun]] = false
		}
	}
	for _, value := range secrets {
		s.lookFor(value)
		s.lookForLines(value)
		quoted := strconv.Quote(value)
		s.lookFor(quoted[1 : len(quoted)-1])
		if encoded, err := json.Marshal(value); err == nil {
			s.lookFor(strings.Trim(string(encoded), `"`))
		}
		s.lookFor(url.QueryEscape(value))
		s.lookFor(url.PathEscape(value))
		for skip := range 3 {
			rest := []byte(value[min(len(value), skip):])
			s.lookFor(base64.StdEncoding.EncodeToString(rest))
			s.lookFor(base64.URLEncoding.EncodeToString(rest))
		}
	}
	return s.hidden()
}

func (s *search) lookFor(form string) {
	for i := 0; i+leastRun <= len(form); i++ {
		if !s.begin[hash(form[i:])] {
			continue
		}
		if _, ok := s.runs[form[i:i+leastRun]]; ok {
			s.runs[form[i:i+leastRun]] = true
		}
	}
}

// lookForLines looks for lines that are shorter than a run.
func (s *search) lookForLines(value string) {
	for line := range strings.Lines(value) {
		line = strings.TrimRight(line, "\r\n")
		if len(line) >= shortest && len(line) < leastRun && s.begin[hash(line)] && strings.Contains(s.text, line) {
			s.lines = append(s.lines, line, redactedText)
		}
	}
}

// hidden returns the text without what was found.
func (s *search) hidden() string {
	var out strings.Builder
	kept := 0 // up to here the text is in out, or hidden
	for i := 0; i+leastRun <= len(s.text); i++ {
		if !s.runs[s.text[i:i+leastRun]] {
			continue
		}
		if i > kept || kept == 0 { // else it goes on
			out.WriteString(s.text[kept:i] + redactedText)
		}
		kept = i + leastRun
	}
	out.WriteString(s.text[kept:])
	return strings.NewReplacer(s.lines...).Replace(out.String())
}

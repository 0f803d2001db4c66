package secrets

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/proto"
)

// A Redactor replaces the values of secrets in texts that are kept or shown. A nil one hides nothing.
type Redactor struct {
	words   *strings.Replacer
	longest int // bytes that one of them has
}

// MinSecret is the least length of a secret, in bytes. A shorter one cannot be hidden: every text would hold it.
const MinSecret = 4

// redactedText is what stands for a secret.
const redactedText = "[redacted]"

// NewRedactor hides secrets, and of environments what looks as if it were one.
func NewRedactor(env map[string]string, secrets ...map[string]string) *Redactor {
	var words []string
	for name, value := range env {
		if looksSecret(name, value) {
			words = append(words, secretForms(value)...)
		}
	}
	for _, part := range secrets {
		for _, value := range part {
			if len(value) >= MinSecret { // what is shorter is refused, and would be found in every word of the refusal
				words = append(words, secretForms(value)...)
			}
		}
	}
	if len(words) == 0 {
		return nil
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // the replacer takes the first that fits
	pairs := make([]string, 0, 2*len(words))
	for _, w := range words {
		pairs = append(pairs, w, redactedText)
	}
	return &Redactor{words: strings.NewReplacer(pairs...), longest: len(words[0])}
}

// Hide replaces every secret in a text.
func (v *Redactor) Hide(text string) string {
	if v == nil {
		return text
	}
	return v.words.Replace(text)
}

// HideAll is hide of each.
func (v *Redactor) HideAll(texts []string) []string {
	if v == nil {
		return texts
	}
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = v.Hide(t)
	}
	return out
}

// Tail is hide of the last n bytes of a text. No part of a secret is left at the cut: what is replaced is longer by
// one secret at each end.
func (v *Redactor) Tail(text string, n int) string {
	cut := max(0, len(text)-n)
	if v == nil || cut == 0 {
		return v.Hide(text[cut:])
	}
	from := max(0, cut-v.longest)
	before, after := v.Hide(text[from:cut]), v.Hide(text[cut:])
	// one goes across the cut: give up what may be the rest of it
	if whole := v.Hide(text[from:]); whole != before+after {
		return v.Hide(text[min(len(text), cut+v.longest):])
	}
	return after
}

// Error is err in words that hide secrets.
func (v *Redactor) Error(err error) error {
	var e *proto.Error
	if v == nil || !errors.As(err, &e) {
		return err
	}
	hidden := *e
	hidden.Message, hidden.Item = v.Hide(e.Message), v.Hide(e.Item)
	if hidden == *e {
		return err
	}
	return &hidden
}

// HideExec is a command as it is kept and shown.
func (v *Redactor) HideExec(info *proto.Exec) {
	info.Command, info.Argv = v.Hide(info.Command), v.HideAll(info.Argv)
}

// Hider gives what replaces secrets in texts that are kept elsewhere, in all the forms that a container's own are
// hidden in; nil if there are none.
func Hider(secrets map[string]string) func(text string) string {
	if v := NewRedactor(nil, secrets); v != nil {
		return v.Hide
	}
	return nil
}

// A redaction finds what looks like a secret and says what takes its place.
type redaction struct {
	find *regexp.Regexp
	with string
	// whatever it finds has one of these in it, in small letters. Most commands have none, and each is looked at
	// several times
	needs []string
}

var redactions = []redaction{
	// an assignment, option or JSON field whose name says so
	{
		regexp.MustCompile(
			`(?i)((?:[a-z0-9_-]*(?:api[_-]?key|secret|token|passw(?:or)?d|passphrase|credential|private[_-]?key|access[_-]?key)[a-z0-9_-]*)\\?["']?\s*[=:\s]\s*)(\\"[^"]*"|"(?:[^"\\]|\\.)*"|"[^"]*$|'[^']*'?|[^\s'";&|]+)`), "${1}[redacted]",
		[]string{"key", "secret", "token", "passw", "passphrase", "credential"}},
	// an HTTP authorization
	{
		regexp.MustCompile(
			`(?i)(authorization["']?\s*[:=]\s*["']?(?:bearer|basic|token)?\s*|bearer\s+)[a-z0-9._~+/=-]{6,}`),
		"${1}[redacted]", []string{"authorization", "bearer"}},
	// curl's user:password
	{regexp.MustCompile(`((?:^|\s)(?:-u|--user)[=\s]*["']?[^\s:"']+:)[^\s"']+`), "${1}[redacted]", []string{"-u"}},
	// user:password@ in a URL
	{regexp.MustCompile(`([a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+@`), "${1}[redacted]@", []string{"://"}},
	// keys that are known by their form
	{
		regexp.MustCompile(
			`\b(sk-[A-Za-z0-9_-]{8,}|berth_[A-Z2-7]{26}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[0-9A-Za-z_-]{30,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+)`), "[redacted]",
		[]string{"sk-", "berth_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "akia", "xox", "aiza", "eyj"}},
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`),
		"[redacted]", []string{"-----begin"}},
}

// Redact replaces what looks like a secret in a command line by "[redacted]". It errs on the
// side of hiding; it cannot know a secret that looks like any other word.
func Redact(s string) string {
	small := strings.ToLower(s)
	// beyond, letters are equal that are not so in small
	ascii := !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
	for _, r := range redactions {
		if !ascii || r.mayFind(small) {
			s = r.find.ReplaceAllString(s, r.with)
		}
	}
	return s
}

// RedactCut is Redact of the first n bytes or so of a text of any length; it takes time for those alone.
func RedactCut(s string, n int) string {
	if len(s) <= n {
		return Redact(s)
	}
	short := Redact(s[:n+min(redactMargin, len(s)-n)])
	return strings.ToValidUTF8(short[:max(0, min(n, len(short)-redactMargin))], "") + "…"
}

// redactMargin is how much of the end of a cut text is given up, since it may hold the half of a secret
// that nobody knows for one any more.
const redactMargin = 1 << 10

// mayFind reports whether there can be anything to find in a text, which is given in small letters.
func (r redaction) mayFind(small string) bool {
	return slices.ContainsFunc(r.needs, func(word string) bool { return strings.Contains(small, word) })
}

// shortest is the length below which a form of a secret would be found in texts by chance, in bytes.
const shortest = 8

// secretName finds environment variables that are named like a secret.
var secretName = regexp.MustCompile(`(?i)key|secret|token|passw|passphrase|credential|auth`)

// looksSecret reports whether a value of an environment should be hidden: one whose name says so, or that is long and
// mixes letters and digits as tokens do. Hiding every value would make command lines unreadable: env holds paths,
// words and numbers.
func looksSecret(name, value string) bool {
	if secretName.MatchString(name) {
		return len(value) >= MinSecret
	}
	digit := strings.ContainsFunc(value, unicode.IsDigit)
	letter := strings.ContainsFunc(value, unicode.IsLetter)
	return len(value) >= shortest && digit && letter && !strings.ContainsAny(value, "/ ")
}

// secretForms are how a secret may stand in a text: as it is, line by line, and as base64, in URLs, in JSON and in
// quotes.
func secretForms(value string) (list []string) {
	list = append(list, value)
	add := func(form string, least int) {
		if len(form) >= least && form != value {
			list = append(list, form)
		}
	}
	for line := range strings.Lines(value) {
		add(strings.TrimRight(line, "\r\n"), shortest)
	}
	quoted := strconv.Quote(value) // as our own messages show what they refuse, cut at some length
	add(quoted[1:len(quoted)-1], MinSecret)
	for _, part := range append(splitForms(value), splitForms(quoted[1:len(quoted)-1])...) {
		add(part, shortest)
	}
	add(url.QueryEscape(value), MinSecret)
	add(url.PathEscape(value), MinSecret)
	if text, err := json.Marshal(value); err == nil {
		add(strings.Trim(string(text), `"`), MinSecret)
	}
	add(strings.ReplaceAll(value, `'`, `'\''`), MinSecret)
	for skip := range 3 {
		for _, form := range base64Forms(value, skip) {
			add(form, shortest)
		}
	}
	return list
}

// splitForms are a long secret in pieces, so that a text that is cut within it shows less than one of them.
func splitForms(value string) (list []string) {
	n := max(2*shortest, len(value)/256)
	for len(value) > n {
		list, value = append(list, value[:n]), value[n:]
	}
	return list
}

// base64Forms is what base64 of a text that holds value has of value alone, where value begins skip bytes behind a
// multiple of three from its beginning; padding and what mixes with neighbours is left out.
func base64Forms(value string, skip int) []string {
	rest := value[min(len(value), (3-skip)%3):]
	whole := []byte(rest[:len(rest)/3*3])
	list := []string{base64.StdEncoding.EncodeToString(whole), base64.URLEncoding.EncodeToString(whole)}
	if skip == 0 { // by itself, with its end
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding,
			base64.RawURLEncoding} {
			list = append(list, e.EncodeToString([]byte(value)))
		}
	}
	return list
}

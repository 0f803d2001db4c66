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

// A Redactor replaces the values of secrets in texts that are kept or shown. A nil Redactor replaces nothing.
type Redactor struct {
	words   *strings.Replacer
	longest int      // length of the longest of them, in bytes
	long    []string // secrets that are longer than texts; see AndLong
}

// MinSecret is the least length of a secret, in bytes. A shorter one cannot be hidden: every text would hold it.
const MinSecret = 4

// redactedText replaces a secret.
const redactedText = "[redacted]"

// NewRedactor hides secrets, and values of an environment that look like secrets.
func NewRedactor(env map[string]string, secrets ...map[string]string) *Redactor {
	var words []string
	for name, value := range env {
		if looksSecret(name, value) {
			words = append(words, secretForms(value)...)
		}
	}
	for _, part := range secrets {
		for _, value := range part {
			if len(value) >= MinSecret { // shorter ones are refused, and the refusal would be full of them
				words = append(words, secretForms(value)...)
			}
		}
	}
	if len(words) == 0 {
		return nil
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // the replacer takes the first match
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
	if text = v.words.Replace(text); len(v.long) > 0 {
		text = hideLong(text, v.long)
	}
	return text
}

// HideAll is Hide of each text.
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

// Tail is Hide of the last n bytes of a text. It looks at one secret's length more, so that no part of a secret is
// left at the cut.
func (v *Redactor) Tail(text string, n int) string {
	cut := max(0, len(text)-n)
	if v == nil || cut == 0 {
		return v.Hide(text[cut:])
	}
	from := max(0, cut-v.longest)
	before, after := v.Hide(text[from:cut]), v.Hide(text[cut:])
	// a secret lies across the cut: drop what may be the rest of it
	if whole := v.Hide(text[from:]); whole != before+after {
		return v.Hide(text[min(len(text), cut+v.longest):])
	}
	return after
}

// Error hides secrets in an error.
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

// HideExec hides secrets in the command of an exec.
func (v *Redactor) HideExec(info *proto.Exec) {
	info.Command, info.Argv = v.Hide(info.Command), v.HideAll(info.Argv)
}

// Hider is a function that hides secrets in texts that are kept elsewhere, in all forms that a Redactor knows. It is
// nil if there are no secrets.
func Hider(secrets map[string]string) func(text string) string {
	if v := NewRedactor(nil, secrets); v != nil {
		return v.Hide
	}
	return nil
}

// A redaction is a pattern that looks like a secret, and its replacement.
type redaction struct {
	find *regexp.Regexp
	with string
	// every match has one of these in it, in lower case. Most commands have none of them, and each command is
	// searched several times
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
	// other letters can match without regard to case and differ in lower case
	ascii := !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
	for _, r := range redactions {
		if !ascii || r.mayFind(small) {
			s = r.find.ReplaceAllString(s, r.with)
		}
	}
	return s
}

// RedactCut is Redact of about the first n bytes of a text. Its time depends on n alone.
func RedactCut(s string, n int) string {
	if len(s) <= n {
		return Redact(s)
	}
	short := Redact(s[:n+min(redactMargin, len(s)-n)])
	return strings.ToValidUTF8(short[:max(0, min(n, len(short)-redactMargin))], "") + "…"
}

// redactMargin is how many bytes at the end of a cut text are dropped, since they may be half of a secret that no
// pattern finds any more.
const redactMargin = 1 << 10

// mayFind reports whether a text, given in lower case, can have a match.
func (r redaction) mayFind(small string) bool {
	return slices.ContainsFunc(r.needs, func(word string) bool { return strings.Contains(small, word) })
}

// shortest is the length in bytes below which a form of a secret would be found in texts by chance.
const shortest = 8

// secretName matches environment variables that are named like a secret.
var secretName = regexp.MustCompile(`(?i)key|secret|token|passw|passphrase|credential|auth`)

// looksSecret reports whether a value of an environment is hidden: its name says so, or it is long and mixes letters
// and digits as tokens do. Hiding every value would make command lines unreadable, since environments hold paths,
// words and numbers.
func looksSecret(name, value string) bool {
	if secretName.MatchString(name) {
		return len(value) >= MinSecret
	}
	digit := strings.ContainsFunc(value, unicode.IsDigit)
	letter := strings.ContainsFunc(value, unicode.IsLetter)
	return len(value) >= shortest && digit && letter && !strings.ContainsAny(value, "/ ")
}

// secretForms are the forms of a secret in texts: as it is, line by line, as base64, in URLs, in JSON and in quotes.
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
	quoted := strconv.Quote(value) // as error messages quote what they refuse, cut at some length
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

// splitForms are the pieces of a long secret, so that a text that is cut within it shows less than one piece.
func splitForms(value string) (list []string) {
	n := max(2*shortest, len(value)/256)
	for len(value) > n {
		list, value = append(list, value[:n]), value[n:]
	}
	return list
}

// base64Forms are the characters that base64 of a text has for value alone, if value begins skip bytes after a
// multiple of three. Padding and characters that mix value with its neighbours are left out.
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

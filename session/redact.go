package session

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

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

// redactMargin is how much of the end of a cut text is given up, since it may hold the half of a secret
// that nobody knows for one any more.
const redactMargin = 1 << 10

// RedactCut is Redact of the first n bytes or so of a text of any length; it takes time for those alone.
func RedactCut(s string, n int) string {
	if len(s) <= n {
		return Redact(s)
	}
	short := Redact(s[:n+min(redactMargin, len(s)-n)])
	return strings.ToValidUTF8(short[:max(0, min(n, len(short)-redactMargin))], "") + "…"
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

// mayFind reports whether there can be anything to find in a text, which is given in small letters.
func (r redaction) mayFind(small string) bool {
	return slices.ContainsFunc(r.needs, func(word string) bool { return strings.Contains(small, word) })
}

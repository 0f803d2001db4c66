package session

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// shortest is the length below which a form of a secret would be found in texts by chance, in bytes.
const shortest = 8

// secretName finds environment variables that are named like a secret.
var secretName = regexp.MustCompile(`(?i)key|secret|token|passw|passphrase|credential|auth`)

// likeSecret reports whether a value of an environment should be hidden: one whose name says so, or that is long and
// mixes letters and digits as tokens do. Hiding every value would make command lines unreadable: env holds paths,
// words and numbers.
func likeSecret(name, value string) bool {
	if secretName.MatchString(name) {
		return len(value) >= MinSecret
	}
	digit := strings.ContainsFunc(value, unicode.IsDigit)
	letter := strings.ContainsFunc(value, unicode.IsLetter)
	return len(value) >= shortest && digit && letter && !strings.ContainsAny(value, "/ ")
}

// forms are how a secret may stand in a text: as it is, line by line, and as base64, in URLs, in JSON and in quotes.
func forms(value string) (list []string) {
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
	for _, part := range append(parts(value), parts(quoted[1:len(quoted)-1])...) {
		add(part, shortest)
	}
	add(url.QueryEscape(value), MinSecret)
	add(url.PathEscape(value), MinSecret)
	if text, err := json.Marshal(value); err == nil {
		add(strings.Trim(string(text), `"`), MinSecret)
	}
	add(strings.ReplaceAll(value, `'`, `'\''`), MinSecret)
	for skip := range 3 {
		for _, form := range inBase64(value, skip) {
			add(form, shortest)
		}
	}
	return list
}

// parts are a long secret in pieces, so that a text that is cut within it shows less than one of them.
func parts(value string) (list []string) {
	n := max(2*shortest, len(value)/256)
	for len(value) > n {
		list, value = append(list, value[:n]), value[n:]
	}
	return list
}

// inBase64 is what base64 of a text that holds value has of value alone, where value begins skip bytes behind a
// multiple of three from its beginning; padding and what mixes with neighbours is left out.
func inBase64(value string, skip int) []string {
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

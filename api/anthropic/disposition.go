package anthropic

import (
	"net/url"
	"strings"
)

// parseDisposition reads the parameters of a part's Content-Disposition in the forms that clients write, which no
// standard parser accepts: raw UTF-8, quotes escaped with a backslash (Go) or as %22 (browsers, Node, Python), a
// literal backslash, and no filename at all for a file.
func parseDisposition(header string) (map[string]string, error) {
	// mime.ParseMediaType would refuse the whole header for one literal backslash.
	kind, rest, _ := strings.Cut(header, ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "form-data") {
		return nil, invalid("Content-Disposition", "Each part of the form needs Content-Disposition: form-data.")
	}
	params := map[string]string{}
	// Each round consumes at least the key and its '=', so the loop ends.
	for rest = strings.TrimLeft(rest, " \t;"); rest != ""; rest = strings.TrimLeft(rest, " \t;") {
		key, after, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, invalid("Content-Disposition", "The Content-Disposition of a part cannot be read.")
		}
		var value string
		if value, rest, ok = cutValue(strings.TrimLeft(after, " \t")); !ok {
			return nil, invalid("Content-Disposition", "The Content-Disposition of a part has a quote without an end.")
		}
		// The last of two parameters with one name counts.
		params[strings.ToLower(strings.TrimSpace(key))] = value
	}
	return withExtended(params)
}

// cutValue splits the value of a parameter from the rest.
func cutValue(s string) (value, rest string, ok bool) {
	// A bare word ends where the next parameter may begin.
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, "; \t")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:], true
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			// Unescape after finding the end: an escaped quote must not end the value.
			return formUnescape.Replace(b.String()), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++ // an escape; other backslashes are literal
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// formUnescape undoes the escapes of browsers' form encoding and no others: "100%25" is a name.
var formUnescape = strings.NewReplacer("%22", `"`, "%0D", "\r", "%0d", "\r", "%0A", "\n", "%0a", "\n")

// withExtended lets filename*=UTF-8”na%C3%AFve override filename, as some older clients intend.
func withExtended(params map[string]string) (map[string]string, error) {
	// The form is charset'language'name; the language is ignored.
	extended, ok := params["filename*"]
	if !ok {
		return params, nil
	}
	charset, rest, _ := strings.Cut(extended, "'")
	_, encoded, found := strings.Cut(rest, "'")
	name, err := url.PathUnescape(encoded)
	if !strings.EqualFold(charset, "UTF-8") || !found || err != nil {
		return nil, invalid("filename", "The filename* of a part must be UTF-8 and percent-encoded.")
	}
	params["filename"] = name
	return params, nil
}

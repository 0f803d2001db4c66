// Package forms reads multipart forms that are uploads of files, part by part and as they arrive. The edges that take
// files call it; what a part means is their affair.
package forms

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"berth/proto"
)

// bufferBytes is how many bytes of a form are read at a time.
const bufferBytes = 256 << 10

// Open begins to read the form in a request's body. The form parser of net/http is not suitable: it buffers a form in
// memory or in a second temporary file, and takes a file without a name for a text field.
func Open(r *http.Request) (f Parts, err error) {
	// A form without a boundary has no parts.
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return f, proto.Invalid("Content-Type", "The request body must be multipart/form-data with a boundary.")
	}
	// The reader reads 4 KiB at a time, each with a system call and two deadlines.
	body := bufio.NewReaderSize(r.Body, bufferBytes)
	return Parts{multipart.NewReader(body, params["boundary"]), body}, nil
}

// Parts is a form that is being read; see Each.
type Parts struct {
	*multipart.Reader
	body io.Reader
}

// A readError is a failure to read the form, which is a 400, as opposed to a failure to store it.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// formError reports an incomplete form. Errors of the body itself, such as one that is too large, are kept.
func formError(err error) error {
	var own *proto.Error
	var part readError
	if errors.As(err, &own) || !errors.As(err, &part) {
		return err
	}
	return proto.Invalid("", "The request body is not a complete multipart form.")
}

// A Part is one part of a form. It marks the errors of reading it.
type Part struct{ *multipart.Part }

func (p Part) Read(b []byte) (int, error) {
	n, err := p.Part.Read(b)
	// io.EOF must stay unwrapped: it ends the part, and io.Copy compares it.
	if err != nil && err != io.EOF {
		err = readError{err}
	}
	return n, err
}

// Each calls take for each part until the closing boundary. A body that ends earlier is an error. So are more
// than most parts: each costs a header to parse, and skipped parts count against no limit except that of the body.
// What take leaves of a part is skipped, since SDKs may send new fields.
func Each(f Parts, most int, take func(d map[string]string, part Part) error) error {
	for n := 0; ; n++ {
		// NextPart would decode quoted-printable, and files are stored as they came.
		part, err := f.NextRawPart()
		if err == io.EOF { // unwrapped; a wrapped EOF means that the body ended before the closing boundary
			_, err := io.Copy(io.Discard, f.body) // what follows may be malformed
			return err
		}
		var d map[string]string
		switch {
		case err != nil:
			err = readError{err}
		case n == most:
			err = proto.Invalid("", "The form has more than %d parts.", most)
		default:
			if d, err = ParseDisposition(part.Header.Get("Content-Disposition")); err == nil {
				err = take(d, Part{part})
			}
		}
		if err != nil {
			return formError(err)
		}
	}
}

// ParseDisposition reads the parameters of a part's Content-Disposition in the forms that clients write, which no
// standard parser accepts: raw UTF-8, quotes escaped with a backslash (Go) or as %22 (browsers, Node, Python), a
// literal backslash, and no filename at all for a file.
func ParseDisposition(header string) (map[string]string, error) {
	// mime.ParseMediaType would refuse the whole header for one literal backslash.
	kind, rest, _ := strings.Cut(header, ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "form-data") {
		return nil, proto.Invalid("Content-Disposition", "Each part of the form needs Content-Disposition: form-data.")
	}
	params := map[string]string{}
	// Each round consumes at least the key and its '=', so the loop ends.
	for rest = strings.TrimLeft(rest, " \t;"); rest != ""; rest = strings.TrimLeft(rest, " \t;") {
		key, after, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, proto.Invalid("Content-Disposition", "The Content-Disposition of a part cannot be read.")
		}
		var value string
		if value, rest, ok = cutValue(strings.TrimLeft(after, " \t")); !ok {
			return nil, proto.Invalid("Content-Disposition",
				"The Content-Disposition of a part has a quote without an end.")
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
		return nil, proto.Invalid("filename", "The filename* of a part must be UTF-8 and percent-encoded.")
	}
	params["filename"] = name
	return params, nil
}

package buildform

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/proto"
)

// part returns the head of a part of a form with the boundary b.
func part(name, file string) string {
	return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"" + file + "\"\r\n\r\n"
}

// FuzzOpen reads any body. What is read stays within the bounds, and an error is the client's.
func FuzzOpen(f *testing.F) {
	f.Add(part("secret", "a") + "1\r\n" + part("context", "c") + "tar\r\n--b--\r\n")
	f.Add(part("context", "c") + "tar\r\n" + part("secret", "a") + "1\r\n--b--\r\n")
	f.Add(part("secret", "a/b") + "1\r\n--b--\r\n")
	f.Add(part("secret", "a") + strings.Repeat("x", 600<<10))
	f.Add(part("other", "a"))
	f.Add("")
	f.Fuzz(func(t *testing.T, body string) {
		r, err := http.NewRequest("POST", "/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", Media+"; boundary=b")
		secrets, context, err := Open(r)
		if err == nil {
			if err := proto.CheckBuildSecrets(secrets); err != nil {
				t.Errorf("secrets out of bounds: %v", err)
			}
			_, err = io.Copy(io.Discard, context)
		}
		if code := proto.CodeOf(err); err != nil && code != proto.InvalidArgument && code != proto.TooLarge {
			t.Errorf("%v, code %q", err, code)
		}
	})
}

// A form ends with the context, and a body of another type is the context.
func TestOpen(t *testing.T) {
	for _, c := range []struct{ kind, body, context, says string }{
		{Media + "; boundary=b", part("secret", "a") + "1\r\n" + part("context", "c") + "tar\r\n--b--\r\n", "tar", ""},
		{Media + "; boundary=b", part("context", "c") + "tar\r\n--b--\r\n", "tar", ""},
		{Media + "; boundary=b", part("context", "c") + "tar\r\n" + part("secret", "a") + "1\r\n--b--\r\n", "tar",
			"after the build context"},
		{Media + "; boundary=b", part("context", "c") + "tar\r\n--", "tar", "not complete"},
		{Media, "tar", "", "boundary"},
		{"application/x-tar", "tar", "tar", ""},
		{"", "tar", "tar", ""},
	} {
		r, err := http.NewRequest("POST", "/", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", c.kind)
		_, context, err := Open(r)
		var text []byte
		if err == nil {
			text, err = io.ReadAll(context)
		}
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q: %v", c.body, err)
		}
		if c.says == "" && string(text) != c.context {
			t.Errorf("%q has the context %q", c.body, text)
		}
	}
}

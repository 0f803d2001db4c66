package vault

import (
	"bytes"
	"crypto/cipher"
	"strings"
	"testing"

	"berth/proto"
)

// Nothing opens but what was sealed, under the name it was sealed under; all else is told as damaged and never as a
// crash.
func FuzzUnseal(f *testing.F) {
	v := &Vault{keys: map[string]cipher.AEAD{}}
	if err := v.parse([]byte(keyWord + " " + strings.Repeat("0b", keyBytes) + "\n")); err != nil {
		f.Fatal(err)
	}
	text := []byte(`{"secrets":{"A":"correct horse"}}`)
	good, err := v.Seal("container_a", text)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("container_a", good)
	f.Add("container_b", good)
	f.Add("container_a", good[:len(good)-1])
	f.Add("container_a", strings.ToUpper(good))
	f.Fuzz(func(t *testing.T, name, sealed string) {
		out, err := v.Unseal(name, sealed)
		if err == nil && (name != "container_a" || !bytes.Equal(out, text)) {
			t.Fatalf("%q opens %q under %q", sealed, out, name)
		}
		if err != nil && proto.CodeOf(err) != proto.Unavailable {
			t.Fatalf("%q: %v", sealed, err)
		}
	})
}

// A key file is usable as a whole or refused with what to do, whatever it holds.
func FuzzKeyFile(f *testing.F) {
	good := keyWord + " " + strings.Repeat("0b", keyBytes) + "\n"
	for _, seed := range []string{good, good + good, good[:20], strings.ToUpper(good), "\n" + good, good + "x",
		strings.ReplaceAll(good, "\n", "\r\n"), keyWord + " \n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v := &Vault{keys: map[string]cipher.AEAD{}}
		if err := v.parse(data); err != nil {
			if proto.CodeOf(err) != proto.Unavailable {
				t.Fatal(err)
			}
			return
		}
		sealed, err := v.Seal("n", []byte("text"))
		if err != nil {
			t.Fatalf("a key file that was taken cannot be used: %v", err)
		}
		if out, err := v.Unseal("n", sealed); err != nil || string(out) != "text" {
			t.Fatalf("%q %v", out, err)
		}
	})
}

package vault

import (
	"crypto/cipher"
	"strings"
	"testing"

	"berth/test/stored"
)

// TestFormat opens a text that an earlier build sealed, with the key file of that build.
func TestFormat(t *testing.T) {
	const golden = "v1.ebf7c96a.iOm2qmqHY2nQJ0sReYMt7l_6kheGS4oql2tnvpdWqqZz49MMtXf7lo4"
	v := &Vault{keys: map[string]cipher.AEAD{}}
	if err := v.parse([]byte("berth-vault-1 " + strings.Repeat("0b", 32) + "\n")); err != nil {
		t.Fatal(err)
	}
	if text, err := v.Unseal("container_a", golden); err != nil || string(text) != "correct horse" {
		sealed, _ := v.Seal("container_a", []byte("correct horse"))
		t.Errorf("%s opens as %q, %v; this build seals as %s", golden, text, err, sealed)
	}
	stored.CheckNames(t, keyRecord{}, "id")
	if bucket != "vault" || currentKey != "key" {
		t.Errorf("the record is at %s/%s", bucket, currentKey)
	}
}

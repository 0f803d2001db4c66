package session

import (
	"encoding/json"
	"testing"
)

// TestSealedSecretsKeepTheirFormat holds the names under which sealed secrets are stored: a ledger of an earlier build
// has them.
func TestSealedSecretsKeepTheirFormat(t *testing.T) {
	const stored = `{"env":{"A":"1"},"secrets":{"B":"2"},"swapped":{"C":{"Value":"3"}}}`
	var c sealedFields
	if err := json.Unmarshal([]byte(stored), &c); err != nil {
		t.Fatal(err)
	}
	if c.Env["A"] != "1" || c.Secrets["B"] != "2" || c.Placeholders["C"].Value != "3" {
		t.Errorf("read %+v of %s", c, stored)
	}
}

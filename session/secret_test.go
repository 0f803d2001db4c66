package session

import (
	"encoding/base64"
	"strings"
	"testing"

	"berth/proto"
)

const hushed = "Tr0ub4dor & 3/+ \"'ü\nsecond line"

func TestVeilHidesASecretHoweverItIsWritten(t *testing.T) {
	v := newVeil(nil, map[string]string{"S": hushed})
	for _, text := range append(forms(hushed), "x"+hushed+"y", base64.StdEncoding.EncodeToString(
		[]byte("user:"+hushed)), hushed+hushed) {
		out := v.hide("before " + text + " after")
		if strings.Contains(out, "ub4dor") || !strings.Contains(out, shownInstead) ||
			!strings.HasPrefix(out, "before ") || !strings.HasSuffix(out, " after") {
			t.Errorf("%q is shown as %q", text, out)
		}
	}
	if enc := base64.StdEncoding.EncodeToString([]byte("user:" + hushed)); strings.Contains(v.hide(enc),
		base64.StdEncoding.EncodeToString([]byte("ub4dor & 3/+"))) {
		t.Error("base64 of a text that holds it shows it")
	}
	if out := v.hide("an innocent command line --with=words"); out != "an innocent command line --with=words" {
		t.Error(out)
	}
}

// However a text is cut, its tail has no part of a secret that is long enough to matter.
func TestVeilHidesWhatACutGoesThrough(t *testing.T) {
	const secret = "abcdefghijklmnopqrstuvwxyz0123456789"
	v := newVeil(nil, map[string]string{"S": secret})
	text := "x " + secret + strings.Repeat(" y", 40) + secret + " z"
	for n := range len(text) + 2 {
		out := v.tail(text, n)
		for i := range len(secret) - 4 {
			if strings.Contains(out, secret[i:i+4]) {
				t.Fatalf("the last %d bytes show %q: %q", n, secret[i:i+4], out)
			}
		}
	}
}

func TestVeilLeavesOrdinaryEnvironments(t *testing.T) {
	v := newVeil(map[string]string{"LANG": "C.UTF-8", "HOME": "/home/user2", "N": "12345678", "MODE": "production",
		"TOKEN": "abcd", "X": "f3a9c1d2e4"})
	text := "C.UTF-8 /home/user2 12345678 production"
	if out := v.hide(text); out != text {
		t.Error(out)
	}
	if out := v.hide("abcd f3a9c1d2e4"); out != shownInstead+" "+shownInstead {
		t.Error(out)
	}
}

func TestSecretsAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ secrets, env map[string]string }{
		"too short": {map[string]string{"S": "abc"}, nil},
		"no name":   {map[string]string{"": "abcdef"}, nil},
		"bad name":  {map[string]string{"A=B": "abcdef"}, nil},
		"in env":    {map[string]string{"S": "abcdef"}, map[string]string{"S": "x"}},
		"NUL":       {map[string]string{"S": "abc\x00def"}, nil},
	} {
		if err := checkSecrets(c.secrets, c.env); proto.CodeOf(err) != proto.InvalidArgument ||
			strings.Contains(err.Error(), "abc") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkSecrets(map[string]string{"S": "abcd"}, map[string]string{"T": ""}); err != nil {
		t.Error(err)
	}
}

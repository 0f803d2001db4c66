package access

import (
	"context"
	"testing"
	"time"

	"berth/proto"
)

// A box is a sandbox whose digests are its secret and the text.
type box struct{ id, owner, secret string }

func (b box) ID() string                { return b.id }
func (b box) Owner() string             { return b.owner }
func (b box) Digest(text string) string { return SpellKey(b.secret + text) }

// A ring is a list of keys; those in ended are no longer valid.
type ring struct {
	list  []proto.Key
	ended map[string]bool
}

func (r ring) List() []proto.Key { return r.list }

func (r ring) Life(id string) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	if r.ended[id] {
		cancel()
		return ctx
	}
	context.AfterFunc(ctx, cancel)
	return ctx
}

func TestKeySpelling(t *testing.T) {
	const key = "berth_ABC-xyz"
	spelled := SpellKey(key)
	if spelled != "e2b_62657274685f4142432d78797a" {
		t.Errorf("spelled %q", spelled)
	}
	for text, want := range map[string]string{spelled: key, key: key, "": "", "e2b_": "e2b_", "e2b_6": "e2b_6",
		"e2b_xy": "e2b_xy"} {
		if got := Key(text); got != want {
			t.Errorf("Key(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestTokens(t *testing.T) {
	one := box{proto.NewID(proto.ContainerPrefix), "ann", "s"}
	other := box{proto.NewID(proto.ContainerPrefix), "ann", "s"}
	keys := ring{list: []proto.Key{{ID: "key_a", Owner: "ann"}, {ID: "key_b", Owner: "ann"}, {ID: "key_c",
		Owner: "bob"}}, ended: map[string]bool{"key_b": true}}
	token := Token(one, "key_a")
	if ContainerOf(token) != one.id {
		t.Errorf("the token is for %q, want %q", ContainerOf(token), one.id)
	}
	for _, c := range []struct{ what, token, key string }{
		{"its own", token, "key_a"}, {"of another sandbox", Token(other, "key_a"), ""},
		{"of a revoked key", Token(one, "key_b"), ""}, {"changed", token + "0", ""}, {"none", "", ""},
		{"with another key in it", one.id + ".key_c." + token, ""},
	} {
		if got := KeyOf(one, keys, c.token); got != c.key {
			t.Errorf("a token %s: key %q, want %q", c.what, got, c.key)
		}
	}
	u := Signed{Path: "a.txt", Operation: "read", Expires: "100"}
	u.Signature = u.Sign(token)
	if got := u.KeyOf(one, keys); got != "key_a" {
		t.Errorf("a signature is of %q", got)
	}
	if got := u.KeyOf(other, keys); got != "" {
		t.Errorf("a signature for another sandbox is of %q", got)
	}
	u.Operation = "write"
	if got := u.KeyOf(one, keys); got != "" {
		t.Errorf("a signature for reading allows writing, with %q", got)
	}
	if !u.Expired(time.Unix(100, 0)) || u.Expired(time.Unix(99, 0)) {
		t.Error("a signature until 100 must be valid at 99 and not at 100")
	}
}

// TestSignature checks a value that clients of E2B make.
func TestSignature(t *testing.T) {
	u := Signed{Path: "hello.txt", Operation: "read", User: "user"}
	if got := u.Sign("0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"); got != "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E" {
		t.Errorf("signed %s", got)
	}
}

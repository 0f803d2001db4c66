package logins

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"berth/proto"
	"berth/state/keys"
	"berth/state/ledger"
	"berth/test/stored"
)

// A bench has logins over a ledger and keys, with a clock that the test moves.
type bench struct {
	*Store
	keys *keys.Store
	db   *ledger.DB
	now  time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{now: time.Now()}
	var err error
	if b.db, err = ledger.Open(filepath.Join(t.TempDir(), "ledger.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.db.Close() })
	if b.keys, err = keys.Open(keys.Config{Ledger: b.db, Secret: "the-secret-of-the-key-file"}); err != nil {
		t.Fatal(err)
	}
	b.open(t)
	return b
}

func (b *bench) open(t *testing.T) {
	t.Helper()
	var err error
	if b.Store, err = Open(Config{Ledger: b.db, Keys: b.keys, Now: func() time.Time { return b.now }}); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) key(t *testing.T, admin bool) proto.Caller {
	t.Helper()
	k, err := b.keys.Create(proto.Caller{Owner: "ann", Admin: true}, proto.CreateKey{Owner: "ann", Admin: admin})
	if err != nil {
		t.Fatal(err)
	}
	return proto.Caller{Owner: "ann", KeyID: k.ID, Admin: admin}
}

func (b *bench) login(t *testing.T, c proto.Caller) string {
	t.Helper()
	link, _ := b.Link(c)
	secret, got, _, err := b.Redeem(link)
	if err != nil || got != c {
		t.Fatalf("%v %v, want %v", got, err, c)
	}
	return secret
}

func code(_ proto.Caller, _ context.Context, err error) proto.Code { return proto.CodeOf(err) }

// A link is good once and for a minute, whatever else is right.
func TestLinks(t *testing.T) {
	b := newBench(t)
	c := b.key(t, false)
	link, until := b.Link(c)
	if until.Sub(b.now) != time.Minute {
		t.Errorf("it is good for %s", until.Sub(b.now))
	}
	if _, _, _, err := b.Redeem(link); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := b.Redeem(link); proto.CodeOf(err) != proto.Unauthenticated {
		t.Errorf("a second use: %v", err)
	}
	link, until = b.Link(c)
	b.now = until
	if _, _, _, err := b.Redeem(link); proto.CodeOf(err) != proto.Unauthenticated {
		t.Errorf("after a minute: %v", err)
	}
	link, _ = b.Link(c)
	if _, err := b.keys.Revoke(t.Context(), c.KeyID); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := b.Redeem(link); proto.CodeOf(err) != proto.Unauthenticated {
		t.Errorf("after its key: %v", err)
	}
	first, _ := b.Link(c)
	for range maxLinks {
		b.now = b.now.Add(time.Second)
		b.Link(c)
	}
	if len(b.links) != maxLinks {
		t.Errorf("%d links wait", len(b.links))
	}
	if _, _, _, err := b.Redeem(first); err == nil {
		t.Error("the oldest link still waits")
	}
}

// A login lasts over a restart, and ends by logout, with its key, and after a week; then what is open ends, too.
func TestLogins(t *testing.T) {
	b := newBench(t)
	c := b.key(t, true)
	secret := b.login(t, c)
	b.open(t)
	got, life, err := b.Authenticate(secret)
	if err != nil || got != c || life.Err() != nil {
		t.Fatalf("after a restart: %v %v %v", got, life, err)
	}
	if err := b.End(secret); err != nil || life.Err() == nil {
		t.Errorf("after the end: %v, its life goes on: %t", err, life.Err() == nil)
	}
	if got := code(b.Authenticate(secret)); got != proto.Unauthenticated {
		t.Errorf("after the end: %s", got)
	}
	b.open(t)
	if got := code(b.Authenticate(secret)); got != proto.Unauthenticated {
		t.Errorf("after the end and a restart: %s", got)
	}
	secret = b.login(t, c)
	b.now = b.now.Add(LoginTime)
	if got := code(b.Authenticate(secret)); got != proto.Unauthenticated {
		t.Errorf("after a week: %s", got)
	}
	if done, err := b.Sweep(t.Context()); err != nil || done.Removed != 1 || len(b.logins) != 0 {
		t.Errorf("%v %v, %d are left", done, err, len(b.logins))
	}
	secret = b.login(t, c)
	_, life, _ = b.Authenticate(secret)
	if _, err := b.keys.Revoke(t.Context(), c.KeyID); err != nil {
		t.Fatal(err)
	}
	if got := code(b.Authenticate(secret)); got != proto.Unauthenticated || life.Err() == nil {
		t.Errorf("after its key: %s, its life goes on: %t", got, life.Err() == nil)
	}
}

// An access token that stands for an admin's key makes a login that is no admin's, and that ends with the token.
func TestLoginsOfAccessTokens(t *testing.T) {
	b := newBench(t)
	c := b.key(t, true)
	c.Admin, c.Ends = false, b.now.Add(time.Hour)
	link, _ := b.Link(c)
	secret, got, until, err := b.Redeem(link)
	if err != nil || got.Admin || !until.Equal(c.Ends) {
		t.Fatalf("%v until %s: %v", got, until, err)
	}
	if got, _, err := b.Authenticate(secret); err != nil || got.Admin {
		t.Errorf("%v %v", got, err)
	}
}

// A key has a bounded number of logins: a further one ends the oldest.
func TestLoginsAreBounded(t *testing.T) {
	b := newBench(t)
	c := b.key(t, false)
	first := b.login(t, c)
	for range maxLogins {
		b.now = b.now.Add(time.Millisecond)
		b.login(t, c)
	}
	if got := code(b.Authenticate(first)); got != proto.Unauthenticated || len(b.logins) != maxLogins {
		t.Errorf("the oldest: %s; there are %d", got, len(b.logins))
	}
}

// The ledger has no secret.
func TestOnlyHashesOfLoginsAreKept(t *testing.T) {
	b := newBench(t)
	secret := b.login(t, b.key(t, false))
	err := b.db.View(func(tx *ledger.Tx) error {
		return tx.Scan(bucket, "", func(key string, data []byte) (bool, error) {
			if key == secret || string(data) == secret || key != hashOf(secret) {
				t.Errorf("the key is %s", key)
			}
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRecordsKeepTheirFormat holds the name of the bucket and of the fields in its records.
func TestRecordsKeepTheirFormat(t *testing.T) {
	stored.CheckNames(t, record{}, "key_id admin created expires")
	if bucket != "console_logins" {
		t.Errorf("the bucket is %s", bucket)
	}
}

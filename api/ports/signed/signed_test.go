package signed

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/state/vault"
	"berth/test/stored"
)

// open returns the ledger and the vault of a data directory.
func open(t *testing.T, dir string) (*ledger.DB, *vault.Vault) {
	t.Helper()
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	v, err := vault.Open(filepath.Join(dir, "secret-key"), db)
	if err != nil {
		t.Fatal(err)
	}
	return db, v
}

func TestTokens(t *testing.T) {
	dir := t.TempDir()
	db, v := open(t, dir)
	tokens := New(db, v)
	now := time.Now().Truncate(time.Second)
	want := Grant{KeyID: "key_1", Expires: now.Add(time.Minute)}
	if _, err := tokens.Check("a.b", "container_a", 80, now); proto.CodeOf(err) != proto.Unauthenticated {
		t.Errorf("before there is a key: %v", err)
	}
	token, err := tokens.Sign("container_a", 80, want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tokens.Check(token, "container_a", 80, now); err != nil || got != want {
		t.Errorf("it says %+v, %v", got, err)
	}
	// another daemon with the same ledger
	if got, err := New(db, v).Check(token, "container_a", 80, now); err != nil || got != want {
		t.Errorf("after a restart it says %+v, %v", got, err)
	}
	if _, err := tokens.Check(token, "container_a", 80, want.Expires); proto.CodeOf(err) != proto.Expired {
		t.Errorf("at its end: %v", err)
	}
	for i, bad := range []error{
		second(tokens.Check(token, "container_b", 80, now)), second(tokens.Check(token, "container_a", 81, now)),
		second(tokens.Check("", "container_a", 80, now)), second(tokens.Check(token+"A", "container_a", 80, now)),
		second(tokens.Check(token+strings.Repeat("A", maxToken), "container_a", 80, now)),
	} {
		if proto.CodeOf(bad) != proto.Unauthenticated {
			t.Errorf("%d: %v", i, bad)
		}
	}
	for i := range token { // no byte of it counts for nothing
		changed := []byte(token)
		if changed[i]++; string(changed) == token {
			continue
		}
		if _, err := tokens.Check(string(changed), "container_a", 80, now); proto.CodeOf(err) != proto.Unauthenticated {
			t.Errorf("with byte %d changed: %v", i, err)
		}
	}
}

func second(_ Grant, err error) error { return err }

// The key is sealed in the ledger, and stays the same when the vault's key changes.
func TestReseal(t *testing.T) {
	db, v := open(t, t.TempDir())
	tokens := New(db, v)
	token, err := tokens.Sign("container_a", 80, Grant{KeyID: "k", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var before, after keyRecord
	read := func(to *keyRecord) {
		if err := db.View(func(tx *ledger.Tx) error { _, err := tx.Get(bucket, record, to); return err }); err != nil {
			t.Fatal(err)
		}
	}
	read(&before)
	sweep := func(reseal func(string, string) (string, error)) (int, int, error) { return Reseal(db, reseal) }
	if done, err := v.Rotate(sweep); err != nil || done.Resealed != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if read(&after); after == before || strings.Contains(after.Sealed, string(tokens.key)) {
		t.Errorf("it is %q after %q", after.Sealed, before.Sealed)
	}
	if _, err := v.Forget(sweep); err != nil {
		t.Fatal(err)
	}
	if _, err := New(db, v).Check(token, "container_a", 80, time.Now()); err != nil {
		t.Errorf("after the vault's key changed: %v", err)
	}
	// A vault with another key opens nothing: tokens end, and new ones can be made.
	_, other := open(t, t.TempDir())
	lost := New(db, other)
	if _, err := lost.Check(token, "container_a", 80, time.Now()); proto.CodeOf(err) != proto.Unauthenticated {
		t.Errorf("without the vault's key: %v", err)
	}
	if _, err := lost.Sign("container_a", 80, Grant{}); err != nil {
		t.Errorf("without the vault's key: %v", err)
	}
}

// TestRecordKeepsItsFormat holds the names in the ledger.
func TestRecordKeepsItsFormat(t *testing.T) {
	stored.CheckNames(t, keyRecord{}, "sealed")
	if bucket != "ports" || record != "url-key" {
		t.Errorf("the key is at %s/%s", bucket, record)
	}
}

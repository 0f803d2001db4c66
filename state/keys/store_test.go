package keys

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

const fileSecret = "berth_file-key-0123456789"

// A bench is a store that can be opened again over the same ledger, at a time of the test's choosing.
type bench struct {
	*Store
	books *ledger.DB
	mu    sync.Mutex
	at    time.Time
}

func (b *bench) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = b.at.Add(d)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	books, err := ledger.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{books: books, at: time.Date(2026, 5, 1, 23, 0, 0, 0, time.UTC)}
	b.open(t, fileSecret)
	t.Cleanup(func() {
		b.Close()
		books.Close()
	})
	return b
}

func (b *bench) open(t *testing.T, secret string) {
	t.Helper()
	s, err := Open(Config{Ledger: b.books, Secret: secret, Now: b.now})
	if err != nil {
		t.Fatal(err)
	}
	b.Store = s
}

func (b *bench) reopen(t *testing.T, secret string) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.open(t, secret)
}

func (b *bench) create(t *testing.T, req proto.CreateKey) proto.NewKey {
	t.Helper()
	k, err := b.Create(proto.Caller{Owner: "asker"}, req)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// right fails the test unless the secret is that of a key of owner.
func (b *bench) right(t *testing.T, secret, owner string) proto.Caller {
	t.Helper()
	c, err := b.Authenticate(t.Context(), secret)
	if err != nil || c.Owner != owner {
		t.Fatalf("%+v %v", c, err)
	}
	return c
}

func TestWrongKeys(t *testing.T) {
	b := newBench(t)
	good := b.create(t, proto.CreateKey{Owner: "ann"})
	gone := b.create(t, proto.CreateKey{Owner: "ann"})
	late := b.create(t, proto.CreateKey{Owner: "ann", ExpiresInSeconds: 60})
	b.right(t, good.Secret, "ann")
	b.right(t, late.Secret, "ann")
	if _, err := b.Revoke(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Minute)
	for name, secret := range map[string]string{
		"none": "", "wrong": newSecret(), "truncated": good.Secret[:len(good.Secret)-1], "longer": good.Secret + "A",
		"lower case": strings.ToLower(good.Secret),
		"revoked":    gone.Secret, "expired": late.Secret, "the ID": good.ID, "padded": good.Secret + strings.Repeat(
			" ", maxSecret),
	} {
		c, err := b.Authenticate(t.Context(), secret)
		if err == nil || proto.CodeOf(err) != proto.Unauthenticated || err.Error() != "Invalid API key." ||
			c != (proto.Caller{}) {
			t.Errorf("%s: %+v %v", name, c, err)
		}
	}
	b.right(t, good.Secret, "ann")
}

// A key of the greatest length is not good with something behind it.
func TestLongestKey(t *testing.T) {
	long := strings.Repeat("k", maxSecret)
	b := newBench(t)
	b.reopen(t, long)
	b.right(t, long, DefaultOwner)
	if _, err := b.Authenticate(t.Context(), long+"x"); err == nil {
		t.Error("a longer one is right too")
	}
}

// The ledger holds no secret, so who reads it cannot use the keys.
func TestOnlyHashesAreKept(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{Name: "n"})
	b.right(t, k.Secret, "asker")
	if _, err := b.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := b.books.View(func(tx *ledger.Tx) error {
		return tx.Scan(bucketKeys, "", func(id string, data []byte) (bool, error) {
			seen++
			for _, secret := range []string{k.Secret, fileSecret} {
				if strings.Contains(string(data)+id, strings.TrimPrefix(secret, secretPrefix)) {
					t.Errorf("%s is in the ledger: %s", id, data)
				}
			}
			return true, nil
		})
	})
	if err != nil || seen != 2 {
		t.Fatal(seen, err)
	}
	if text, _ := json.Marshal(b.List()); strings.Contains(string(text), k.Secret) ||
		strings.Contains(string(text), "hash") {
		t.Errorf("the list tells too much: %s", text)
	}
}

func TestRevokeIsAtOnceAndForGood(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{})
	life := b.Life(k.ID)
	if life.Err() != nil {
		t.Fatal("ended before it was revoked")
	}
	if _, err := b.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	if life.Err() == nil || b.Life(k.ID).Err() == nil || b.Life("key_none").Err() == nil {
		t.Error("its life goes on")
	}
	if b.Admit("key_none") == nil {
		t.Error("a key that never was may make requests")
	}
	again, err := b.Revoke(t.Context(), k.ID)
	if err != nil || again.RevokedAt == nil {
		t.Errorf("a second time: %+v %v", again, err)
	}
	// As after a crash: nothing but the ledger is left, and nobody closed the store.
	b.open(t, fileSecret)
	if _, err := b.Authenticate(t.Context(), k.Secret); err == nil || b.Life(k.ID).Err() == nil {
		t.Error("it is right again after a restart")
	}
	if _, err := b.Change(k.ID, proto.ChangeKey{Name: new(string)}); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("changed after it was revoked: %v", err)
	}
}

// What waits on a key hears of its expiry without anybody asking.
func TestExpiryEndsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{cfg: Config{Now: time.Now}, byID: map[string]*entry{}, byHash: map[hash]*entry{}, byName: map[string][]*entry{}}
		rec := newRecord(newSecret(), time.Now())
		rec.Expires = time.Now().Add(time.Hour)
		s.place(newEntry(rec, time.Now()))
		time.Sleep(time.Hour - time.Second)
		if s.Life(rec.ID).Err() != nil {
			t.Error("too early")
		}
		<-s.Life(rec.ID).Done() // a deadlock, if nothing ends it
		if !time.Now().Equal(rec.Expires) {
			t.Error("not when it expired")
		}
	})
}

func TestKeyFileKey(t *testing.T) {
	b := newBench(t)
	c := b.right(t, fileSecret, DefaultOwner)
	if !c.Admin {
		t.Error("not an admin")
	}
	if _, err := b.Revoke(t.Context(), c.KeyID); proto.CodeOf(err) != proto.Conflict ||
		!strings.Contains(err.Error(), "replace the file") {
		t.Fatalf("revoked through the API: %v", err)
	}
	b.reopen(t, fileSecret)
	if again := b.right(t, fileSecret, DefaultOwner); again.KeyID != c.KeyID {
		t.Error("another ID after a restart")
	}
	other := "berth_another-file-key-456"
	b.reopen(t, other)
	b.right(t, other, DefaultOwner)
	if _, err := b.Authenticate(t.Context(), fileSecret); err == nil {
		t.Error("the replaced key is still right")
	}
	b.reopen(t, fileSecret) // and back again: a key of its own, the revoked one stays revoked
	if back := b.right(t, fileSecret, DefaultOwner); back.KeyID == c.KeyID {
		t.Error("a revoked key came back")
	}
	k := b.create(t, proto.CreateKey{Owner: "ann"})
	b.Close()
	if _, err := Open(Config{Ledger: b.books, Secret: k.Secret, Now: b.now}); err == nil ||
		!strings.Contains(err.Error(), k.ID) {
		t.Errorf("ann's key in the key file: %v", err)
	}
}

// A key cannot cut the ground from under its own request.
func TestOwnKeyIsNotRevoked(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{Admin: true})
	ctx := proto.WithCaller(t.Context(), b.right(t, k.Secret, "asker"))
	if _, err := b.Revoke(ctx, k.ID); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("%v", err)
	}
	b.right(t, k.Secret, "asker")
}

func TestLastUse(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{})
	if k.LastUsedAt != nil {
		t.Fatal("used before it was made")
	}
	b.pass(time.Minute)
	b.right(t, k.Secret, "asker")
	used := b.now()
	if done, err := b.Sweep(t.Context()); err != nil || done.Noted != 1 {
		t.Fatalf("%+v %v", done, err)
	}
	if done, err := b.Sweep(t.Context()); err != nil || done.Noted != 0 {
		t.Fatalf("nothing changed: %+v %v", done, err)
	}
	b.pass(time.Minute)
	b.open(t, fileSecret) // without Close
	if got, err := b.Get(k.ID); err != nil || got.LastUsedAt == nil || !got.LastUsedAt.Equal(used) {
		t.Errorf("%+v %v", got, err)
	}
}

func TestRefusedRequests(t *testing.T) {
	b := newBench(t)
	for name, req := range map[string]proto.CreateKey{
		"name":        {Name: "a\nb"},
		"long name":   {Name: strings.Repeat("n", proto.MaxKeyName+1)},
		"owner":       {Owner: "a/b"},
		"owner first": {Owner: "-a"},
		"long owner":  {Owner: strings.Repeat("o", maxOwner+1)},
		"NUL owner":   {Owner: "a\x00file_"},
		"expiry":      {ExpiresInSeconds: -1},
		"far expiry":  {ExpiresInSeconds: math.MaxInt64},
		"sessions":    {Quota: proto.Quota{Sessions: -1}},
		"cpu":         {Quota: proto.Quota{CPUSecondsPerDay: math.NaN()}},
		"storage":     {Quota: proto.Quota{StorageBytes: -1}},
		"rate":        {Quota: proto.Quota{RequestsPerSecond: math.Inf(1)}},
		"burst":       {Quota: proto.Quota{Burst: 3}},
	} {
		if _, err := b.Create(proto.Caller{Owner: "asker"}, req); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(b.List()); n != 1 {
		t.Errorf("%d keys", n)
	}
	if _, err := b.Change(b.List()[0].ID, proto.ChangeKey{Quota: &proto.QuotaChange{
		RequestsPerSecond: new(-1.0)}}); proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("change: %v", err)
	}
	if _, err := b.Get("key_none"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("get: %v", err)
	}
}

// Rates: the burst and not one more, refills as time goes, and a change holds at once.
func TestRate(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{Quota: proto.Quota{RequestsPerSecond: 2, Burst: 5}})
	admitted := func() (n int, wait int64) {
		for {
			_, err := b.Authenticate(t.Context(), k.Secret)
			if err != nil {
				if proto.CodeOf(err) != proto.TooMany {
					t.Fatal(err)
				}
				return n, proto.AsError(err).RetryAfter
			}
			n++
		}
	}
	steps := []struct {
		after time.Duration
		n     int
	}{{0, 5}, {0, 0}, {500 * time.Millisecond, 1}, {499 * time.Millisecond, 0}, {time.Millisecond, 1}, {time.Second, 2},
		{time.Hour, 5}}
	for i, s := range steps {
		b.pass(s.after)
		if n, wait := admitted(); n != s.n || wait != 1 {
			t.Errorf("step %d: %d admitted, not %d; wait %d", i, n, s.n, wait)
		}
	}
	slow, burst := 0.01, int64(1)
	if _, err := b.Change(k.ID, proto.ChangeKey{Quota: &proto.QuotaChange{RequestsPerSecond: &slow,
		Burst: &burst}}); err != nil {
		t.Fatal(err)
	}
	n, wait := admitted()
	if n != 0 || wait != 100 {
		t.Errorf("lowered: %d admitted, wait %d", n, wait)
	}
	b.pass(time.Duration(wait)*time.Second - time.Second)
	if n, wait := admitted(); n != 0 || wait != 1 {
		t.Errorf("a second too early: %d, wait %d", n, wait)
	}
	b.pass(time.Second)
	if n, _ := admitted(); n != 1 {
		t.Errorf("after the time that was told: %d admitted", n)
	}
	b.pass(time.Hour)
	if n, _ := admitted(); n != 1 {
		t.Errorf("more than the burst after a pause: %d", n)
	}
	none := 0.0
	zero := int64(0)
	if _, err := b.Change(k.ID, proto.ChangeKey{Quota: &proto.QuotaChange{RequestsPerSecond: &none,
		Burst: &zero}}); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		b.right(t, k.Secret, "asker")
	}
}

// A key that had no rate begins with a full burst when it gets one, for those too who are just asking.
func TestRateOfAKeyThatHadNone(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{})
	b.right(t, k.Secret, "asker")
	two, three := 2.0, int64(3)
	quota := func(c proto.QuotaChange) proto.Key {
		t.Helper()
		got, err := b.Change(k.ID, proto.ChangeKey{Quota: &c})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				_ = b.Admit(k.ID)
			}
		})
	}
	quota(proto.QuotaChange{RequestsPerSecond: &two, Burst: &three})
	wg.Wait()
	b.pass(time.Hour)
	none := 0.0
	// its burst goes with it
	if got := quota(proto.QuotaChange{RequestsPerSecond: &none}); got.Quota != (proto.Quota{}) {
		t.Errorf("%+v", got.Quota)
	}
	for range 10 {
		b.right(t, k.Secret, "asker")
	}
	quota(proto.QuotaChange{RequestsPerSecond: &two, Burst: &three})
	for range 3 {
		b.right(t, k.Secret, "asker")
	}
	if _, err := b.Authenticate(t.Context(), k.Secret); proto.CodeOf(err) != proto.TooMany {
		t.Errorf("after the burst: %v", err)
	}
	if _, err := b.Change(k.ID, proto.ChangeKey{Quota: &proto.QuotaChange{RequestsPerSecond: &none,
		Burst: &three}}); proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("a burst without a rate: %v", err)
	}
}

// However many ask at once, the burst is all they get.
func TestRateUnderCrowd(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{Quota: proto.Quota{RequestsPerSecond: 1, Burst: 50}})
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	wg.Go(func() { // beside changes of the key
		for i := range 20 {
			name := fmt.Sprint("name ", i)
			if _, err := b.Change(k.ID, proto.ChangeKey{Name: &name}); err != nil {
				t.Error(err)
			}
		}
	})
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if _, err := b.Authenticate(context.Background(), k.Secret); err == nil {
					mu.Lock()
					n++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if n != 50 {
		t.Errorf("%d admitted", n)
	}
}

func TestCPUBudget(t *testing.T) {
	b := newBench(t) // an hour before midnight
	k := b.create(t, proto.CreateKey{Quota: proto.Quota{CPUSecondsPerDay: 10}})
	b.Ran(k.ID, 9.5)
	if err := b.MayRun(k.ID); err != nil {
		t.Fatalf("under the budget: %v", err)
	}
	b.Ran(k.ID, math.NaN())
	b.Ran(k.ID, -5)
	b.Ran("", 100)
	b.Ran(k.ID, 0.5)
	b.pass(20 * time.Minute)
	err := b.MayRun(k.ID)
	if proto.CodeOf(err) != proto.TooMany || proto.AsError(err).RetryAfter != 40*60 {
		t.Fatalf("at the budget: %v", err)
	}
	// As after a crash.
	// all that was queued before is written
	if err := b.books.Update(func(*ledger.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	b.open(t, fileSecret)
	if got := b.CPUSeconds(k.ID); got != 10 {
		t.Fatalf("the ledger remembers %v seconds", got)
	}
	more := 11.0
	if _, err := b.Change(k.ID, proto.ChangeKey{Quota: &proto.QuotaChange{CPUSecondsPerDay: &more}}); err != nil ||
		b.MayRun(k.ID) != nil {
		t.Errorf("raised: %v %v", err, b.MayRun(k.ID))
	}
	less := 1.0
	if _, err := b.Change(k.ID, proto.ChangeKey{Quota: &proto.QuotaChange{CPUSecondsPerDay: &less}}); err != nil ||
		b.MayRun(k.ID) == nil {
		t.Errorf("lowered below use: %v", err)
	}
	b.pass(40*time.Minute - time.Second)
	if b.MayRun(k.ID) == nil {
		t.Error("allowed a second before midnight")
	}
	b.pass(time.Second)
	if err := b.MayRun(k.ID); err != nil || b.CPUSeconds(k.ID) != 0 {
		t.Errorf("at midnight: %v", err)
	}
}

// Charges from many goroutines, with the ledger's writer reading them meanwhile, all arrive there.
func TestChargesAddUp(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				b.Ran(k.ID, 1)
			}
		})
	}
	wg.Wait()
	if err := b.books.Update(func(*ledger.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	b.open(t, fileSecret)
	if got := b.CPUSeconds(k.ID); got != 4000 {
		t.Errorf("%v seconds are in the ledger", got)
	}
}

// Who knocks with wrong keys costs no read of the ledger, and leaves nothing in memory.
func TestWrongKeysCostNothing(t *testing.T) {
	b := newBench(t)
	k := b.create(t, proto.CreateKey{})
	entries := len(b.byID) + len(b.byHash) + len(b.spent)
	if err := b.books.Close(); err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		if _, err := b.Authenticate(t.Context(), newSecret()); proto.CodeOf(err) != proto.Unauthenticated {
			t.Fatal(err)
		}
	}
	if n := len(b.byID) + len(b.byHash) + len(b.spent); n != entries {
		t.Errorf("%d entries more", n-entries)
	}
	b.right(t, k.Secret, "asker")
	huge := strings.Repeat("k", 64<<10)
	if n := testing.AllocsPerRun(100, func() { b.Authenticate(t.Context(), huge) }); n > 1 {
		t.Errorf("%v allocations for a huge key", n)
	}
}

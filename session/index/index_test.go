package index

import (
	"slices"
	"testing"

	"berth/proto"
)

type session struct {
	id   string
	gone bool
}

// fill makes an index of sessions that belong to ann, or to bob if their ID begins with b.
func fill(t *testing.T, all ...*session) *Index[*session] {
	t.Helper()
	x := New(func(s *session) bool { return !s.gone })
	for _, s := range all {
		owner := "ann"
		if s.id[0] == 'b' {
			owner = "bob"
		}
		x.Add(s, Entry{ID: s.id, Owner: owner, Key: "key-" + owner, Retry: "r"}, true)
	}
	return &x
}

func take(t *testing.T, x *Index[*session], s *session, name string) {
	t.Helper()
	if err := x.TakeName(s, name); err != nil {
		t.Fatal(err)
	}
}

// TestOneHolder checks that a name has one holder for each owner, and that giving it back frees it.
func TestOneHolder(t *testing.T) {
	a, other, b := &session{id: "a1"}, &session{id: "a2"}, &session{id: "b1"}
	x := fill(t, a, other, b)
	take(t, x, a, "web")
	take(t, x, a, "web") // its own name
	take(t, x, b, "web") // another owner's
	if err := x.TakeName(other, "web"); proto.CodeOf(err) != proto.AlreadyExists {
		t.Errorf("a taken name: %v", err)
	}
	x.FreeName(other, "web")
	if got, ok := x.Named("ann", "web"); !ok || got != a {
		t.Errorf("another session freed it: %v %v", got, ok)
	}
	x.FreeName(a, "web")
	if _, ok := x.Named("ann", "web"); ok {
		t.Error("it is still taken")
	}
	take(t, x, other, "web")
}

// TestGoneHolder checks that a session that cannot be used keeps no name, and that its removal takes none away.
func TestGoneHolder(t *testing.T) {
	old, fresh := &session{id: "a1"}, &session{id: "a2"}
	x := fill(t, old, fresh)
	take(t, x, old, "web")
	old.gone = true
	if _, ok := x.Named("ann", "web"); ok {
		t.Error("one that is gone was found")
	}
	take(t, x, fresh, "web")
	x.Remove(old)
	if got, ok := x.Named("ann", "web"); !ok || got != fresh {
		t.Errorf("found %v %v", got, ok)
	}
}

// TestTwoNames checks that a session that is being renamed holds both names, and that its end frees both.
func TestTwoNames(t *testing.T) {
	a, other := &session{id: "a1"}, &session{id: "a2"}
	x := fill(t, a, other)
	take(t, x, a, "old")
	take(t, x, a, "new")
	for _, name := range []string{"old", "new"} {
		if proto.CodeOf(x.TakeName(other, name)) != proto.AlreadyExists {
			t.Errorf("%s was free", name)
		}
	}
	x.Expired(a)
	take(t, x, other, "old")
	take(t, x, other, "new")
}

// TestNoName checks that sessions without a name do not exclude each other.
func TestNoName(t *testing.T) {
	a, other := &session{id: "a1"}, &session{id: "a2"}
	x := fill(t, a, other)
	take(t, x, a, "")
	take(t, x, other, "")
	if _, ok := x.Named("ann", ""); ok {
		t.Error("no name was found")
	}
}

// TestCounts checks that expired and removed sessions do not count, and are counted off once.
func TestCounts(t *testing.T) {
	a, other, b := &session{id: "a1"}, &session{id: "a2"}, &session{id: "b1"}
	x := fill(t, other, b, a)
	if got := x.Before("ann", ""); !slices.Equal(got, []*session{a, other}) {
		t.Errorf("ann has %v", got)
	}
	if got := x.Before("ann", "a2"); !slices.Equal(got, []*session{a}) {
		t.Errorf("ann has %v before a2", got)
	}
	if s, ok := x.Retried("ann", "r"); !ok || s != other {
		t.Errorf("the newest is %v", s)
	}
	x.Expired(a)
	x.Expired(a)
	x.Remove(a)
	if x.Live() != 2 || x.LiveOf("key-ann") != 1 || x.Counts(a, "") || !x.Counts(b, "key-bob") || x.Counts(b, "key-ann") {
		t.Errorf("%d live, %d of ann", x.Live(), x.LiveOf("key-ann"))
	}
	x.Remove(other)
	if _, ok := x.Retried("ann", "r"); ok || len(x.Before("ann", "")) > 0 {
		t.Error("a removed session was found")
	}
}

// Package index answers questions about all sessions that would otherwise take a walk over them: whose they are, which
// request made one, which one has a name, and how many an API key has.
//
// In scope: these answers, and that a name belongs to one live session of its owner at a time. Out of scope: the
// sessions themselves, the form of a name, which package validate checks, and the records that keep names. Package
// session, the only caller, has the lock.
package index

import (
	"slices"
	"strings"

	"berth/proto"
)

// An Index has sessions of type T. It is not safe for concurrent use.
type Index[T comparable] struct {
	entries map[T]*entry
	byOwner map[string][]T // sorted by ID, which is by time of creation
	byRetry map[owned]T    // the newest by owner and idempotency key
	byName  map[owned]T    // by owner and name
	live    map[string]int64
	all     int64
	usable  func(T) bool
}

// An Entry is what the index knows of a session.
type Entry struct {
	ID, Owner string
	Key       string // the API key that it counts for
	Retry     string // the idempotency key that it was made with; "" for none
}

type entry struct {
	Entry
	counted bool // it counts among the live sessions
	names   []string
}

// owned is something that is unique for an owner.
type owned struct{ owner, key string }

// New makes an empty index. usable reports whether a session can still be used. One that cannot gives up its name,
// even if nothing has called Expired or Remove yet.
func New[T comparable](usable func(T) bool) Index[T] {
	return Index[T]{entries: map[T]*entry{}, byOwner: map[string][]T{}, byRetry: map[owned]T{}, byName: map[owned]T{},
		live: map[string]int64{}, usable: usable}
}

// Add adds a session without a name. live is false for one that has expired.
func (x *Index[T]) Add(s T, e Entry, live bool) {
	x.entries[s] = &entry{Entry: e, counted: live}
	list := x.byOwner[e.Owner]
	at, _ := slices.BinarySearchFunc(list, e.ID, x.compareID)
	x.byOwner[e.Owner] = slices.Insert(list, at, s)
	if e.Retry != "" {
		at := owned{e.Owner, e.Retry}
		if old, ok := x.byRetry[at]; !ok || x.entries[old].ID < e.ID {
			x.byRetry[at] = s
		}
	}
	if live {
		x.live[e.Key]++
		x.all++
	}
}

func (x *Index[T]) compareID(s T, id string) int { return strings.Compare(x.entries[s].ID, id) }

// Expired removes a session from the counts, if it is in them, and frees its name.
func (x *Index[T]) Expired(s T) {
	e := x.entries[s]
	if e == nil {
		return
	}
	for _, name := range e.names {
		x.free(e, name, s)
	}
	e.names = nil
	if !e.counted {
		return
	}
	e.counted = false
	x.all--
	if x.live[e.Key]--; x.live[e.Key] == 0 {
		delete(x.live, e.Key)
	}
}

// Remove removes a session.
func (x *Index[T]) Remove(s T) {
	e := x.entries[s]
	if e == nil {
		return
	}
	x.Expired(s)
	list := slices.DeleteFunc(x.byOwner[e.Owner], func(o T) bool { return o == s })
	if x.byOwner[e.Owner] = list; len(list) == 0 {
		delete(x.byOwner, e.Owner)
	}
	if at := (owned{e.Owner, e.Retry}); x.byRetry[at] == s {
		delete(x.byRetry, at)
	}
	delete(x.entries, s)
}

// Before returns a copy of the owner's sessions with IDs before the given one, or all if that is empty, oldest first.
func (x *Index[T]) Before(owner, id string) []T {
	list := x.byOwner[owner]
	if id != "" {
		at, _ := slices.BinarySearchFunc(list, id, x.compareID)
		list = list[:at]
	}
	return slices.Clone(list)
}

// Retried returns the newest session of an owner that a request with this idempotency key made.
func (x *Index[T]) Retried(owner, key string) (s T, ok bool) {
	s, ok = x.byRetry[owned{owner, key}]
	return s, ok
}

// Live returns the number of sessions that have not expired.
func (x *Index[T]) Live() int64 { return x.all }

// LiveOf returns the number of an API key's sessions that have not expired.
func (x *Index[T]) LiveOf(key string) int64 { return x.live[key] }

// Counts reports whether a session counts among those that have not expired; with a key, among those of that API key.
func (x *Index[T]) Counts(s T, key string) bool {
	e := x.entries[s]
	return e != nil && e.counted && (key == "" || e.Key == key)
}

// Named returns the usable session of an owner that has the name.
func (x *Index[T]) Named(owner, name string) (s T, ok bool) {
	s, ok = x.byName[owned{owner, name}]
	if ok && !x.usable(s) {
		var none T
		return none, false
	}
	return s, ok
}

// CheckName fails with AlreadyExists if a usable session of the owner has the name.
func (x *Index[T]) CheckName(owner, name string) error {
	if other, ok := x.Named(owner, name); ok {
		return proto.Errorf(proto.AlreadyExists, "", name, "the name %q belongs to container %s; delete that or take "+
			"another name", name, x.entries[other].ID)
	}
	return nil
}

// TakeName gives the name to an added session, which keeps those that it has, or fails as CheckName does. The empty
// name is no name and is never taken.
func (x *Index[T]) TakeName(s T, name string) error {
	e := x.entries[s]
	if name == "" || e == nil || slices.Contains(e.names, name) {
		return nil
	}
	if err := x.CheckName(e.Owner, name); err != nil {
		return err
	}
	x.byName[owned{e.Owner, name}] = s
	e.names = append(e.names, name)
	return nil
}

// FreeName takes the name from a session that has it.
func (x *Index[T]) FreeName(s T, name string) {
	e := x.entries[s]
	if e == nil || !slices.Contains(e.names, name) {
		return
	}
	e.names = slices.DeleteFunc(e.names, func(n string) bool { return n == name })
	x.free(e, name, s)
}

// free frees a name unless a usable session has taken it since.
func (x *Index[T]) free(e *entry, name string, s T) {
	if at := (owned{e.Owner, name}); x.byName[at] == s {
		delete(x.byName, at)
	}
}

package session

import (
	"slices"
	"strings"
)

// An index is what Sessions would have to look at all sessions for. It is guarded by Sessions.mu.
type index struct {
	byOwner map[string][]*Session // in the order of their IDs, which is that of their making
	byRetry map[string]*Session   // by owner and idempotency key: the newest
	live    map[string]int64      // sessions that have not expired, by API key
	all     int64                 // of them, of all keys
}

func newIndex() index {
	return index{byOwner: map[string][]*Session{}, byRetry: map[string]*Session{}, live: map[string]int64{}}
}

// retryKey is what byRetry has a session under.
func retryKey(owner, key string) string { return owner + "\x00" + key }

// add is for a session that just became known.
func (x *index) add(s *Session, rec record, expired bool) {
	list := x.byOwner[s.owner]
	at, _ := slices.BinarySearchFunc(list, s.id, func(s *Session, id string) int { return strings.Compare(s.id, id) })
	x.byOwner[s.owner] = slices.Insert(list, at, s)
	if rec.Retry.Key != "" {
		at := retryKey(s.owner, rec.Retry.Key)
		if old := x.byRetry[at]; old == nil || old.id < s.id {
			x.byRetry[at] = s
		}
	}
	if !expired {
		s.counted, s.key = true, rec.Key
		x.live[rec.Key]++
		x.all++
	}
}

// expired takes a session out of the count, if it is in there.
func (x *index) expired(s *Session) {
	if !s.counted {
		return
	}
	s.counted = false
	x.all--
	if x.live[s.key]--; x.live[s.key] == 0 {
		delete(x.live, s.key)
	}
}

// remove forgets a session.
func (x *index) remove(s *Session, retry string) {
	x.expired(s)
	list := x.byOwner[s.owner]
	if list = slices.DeleteFunc(list, func(o *Session) bool { return o == s }); len(list) == 0 {
		delete(x.byOwner, s.owner)
	} else {
		x.byOwner[s.owner] = list
	}
	if at := retryKey(s.owner, retry); x.byRetry[at] == s {
		delete(x.byRetry, at)
	}
}

// before are the owner's sessions whose IDs come before one, or all if that is empty, oldest first. It is a copy.
func (x *index) before(owner, id string) []*Session {
	list := x.byOwner[owner]
	if id != "" {
		at, _ := slices.BinarySearchFunc(list, id, func(s *Session, id string) int { return strings.Compare(s.id, id) })
		list = list[:at]
	}
	return slices.Clone(list)
}

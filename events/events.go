// Package events tells what happens to containers, commands, files and approvals, to those who watch them.
//
// The audit log is the record of all that happens, so this package keeps none of its own: an event is an entry of the
// log as its owner may see it. Events thus cost nothing while no client follows them, come in the order of the log, and
// survive a restart of the daemon. A client that is slow, or was away, reads the same files later. What is too old for
// that, or was lost, becomes a gap event.
//
// In scope: which entries are events, who sees them, and their order and IDs. Out of scope: the entries themselves
// (package audit), the transport (api/native) and webhooks (events/webhook). The output of commands is package
// session/events.
package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/state/audit"
)

// maxFollowers bounds how many followers one owner can have at a time. Each one reads the log for itself.
const maxFollowers = 64

// DefaultPage and MaxPage bound a page, in events.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// A Feed reads the events of a daemon. It is safe for concurrent use.
type Feed struct {
	log *audit.Log

	mu        sync.Mutex
	followers map[string]int // by owner of the caller
}

// New returns the feed of a log.
func New(log *audit.Log) *Feed { return &Feed{log: log, followers: map[string]int{}} }

// A Filter chooses events. Gaps match every filter.
type Filter struct {
	Owner     string // "" is all owners
	Container string // "" is all
	// a type, or the beginning of some that ends in a dot: "exec."; none is all
	Types []string
}

// A Start says with which event reading begins. At most one of After and Since is set.
type Start struct {
	After string    // behind the event with this ID
	Since time.Time // with the first event that is not older
}

// Read returns up to limit events in their order, and whether there are more. With a zero Start they are the newest
// ones.
func (f *Feed) Read(ctx context.Context, filter Filter, from Start, limit int) (
	list []proto.FeedEvent, more bool, err error) {
	if err := filter.check(); err != nil {
		return nil, false, err
	}
	c, err := f.log.Cursor()
	if err != nil {
		return nil, false, err
	}
	defer c.Close()
	if from == (Start{}) {
		list, err = readNewest(ctx, f.log, c, filter, limit)
		return list, false, err
	}
	r := &reader{filter: filter, fn: func(e proto.FeedEvent) error {
		if len(list) == limit {
			more = true
			return errEnough
		}
		list = append(list, e)
		return nil
	}}
	if err = r.seek(c, from, f.log); err == nil {
		err = r.read(ctx, c)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, more, err
}

// errEnough ends a read early.
var errEnough = errors.New("enough")

// readNewest reads the newest events. It reads further and further back until it has enough.
func readNewest(ctx context.Context, log *audit.Log, c *audit.Cursor, filter Filter, limit int) (
	list []proto.FeedEvent, err error) {
	head, _ := log.Head()
	for back := int64(4 * limit); ; back *= 8 {
		all, err := c.SeekAfter(head - back)
		if err != nil {
			return nil, err
		}
		list = list[:0]
		r := &reader{filter: filter, fn: func(e proto.FeedEvent) error {
			list = append(list, e)
			if len(list) >= 2*limit {
				list = slices.Delete(list, 0, len(list)-limit)
			}
			return nil
		}}
		if err := r.read(ctx, c); err != nil {
			return nil, err
		}
		if len(list) >= limit || !all || back >= head {
			return list[max(0, len(list)-limit):], nil
		}
	}
}

// A Follower reads events as they come.
type Follower struct {
	cursor *audit.Cursor
	reader *reader
	start  Start // zero: the cursor is in place
	log    *audit.Log
	leave  func()
}

// Follow returns a follower for the caller of ctx. With a zero Start it begins with the next event.
func (f *Feed) Follow(ctx context.Context, filter Filter, from Start) (_ *Follower, err error) {
	r := &reader{filter: filter}
	if err := filter.check(); err != nil {
		return nil, err
	}
	if from.After != "" {
		if _, err := parsePosition(from.After); err != nil {
			return nil, err
		}
	}
	leave, err := f.enter(proto.CallerOf(ctx).Owner)
	if err != nil {
		return nil, err
	}
	c, err := f.log.Cursor()
	if err == nil && from == (Start{}) {
		head, _ := f.log.Head()
		_, err = c.SeekAfter(head)
	}
	if err != nil {
		leave()
		return nil, err
	}
	return &Follower{c, r, from, f.log, leave}, nil
}

// Each calls fn with the events in their order, and then with new ones, until ctx ends or fn fails. A slow fn misses
// nothing that is not too old by then.
func (f *Follower) Each(ctx context.Context, fn func(proto.FeedEvent) error) (err error) {
	f.reader.fn = fn
	if f.start != (Start{}) {
		err = f.reader.seek(f.cursor, f.start, f.log)
	}
	for err == nil {
		if err = f.reader.read(ctx, f.cursor); err == nil {
			err = f.cursor.Wait(ctx)
		}
	}
	return err
}

// Close ends the follower.
func (f *Follower) Close() error {
	f.leave()
	return f.cursor.Close()
}

// enter counts a follower.
func (f *Feed) enter(owner string) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers[owner] >= maxFollowers {
		return nil, proto.Errorf(proto.TooMany, "", "events", "%d clients of this owner follow events, which is the "+
			"limit; end one, or let several watchers share a client", maxFollowers)
	}
	f.followers[owner]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.followers[owner]--; f.followers[owner] == 0 {
			delete(f.followers, owner)
		}
	}, nil
}

// A reader turns entries into events.
type reader struct {
	filter Filter
	fn     func(proto.FeedEvent) error
	after  position // the client has this event, and those before; zero: none
	passed position // the last event that fn took
}

// seek moves the cursor to the start, and reports a gap if what is behind the start is not all there.
func (r *reader) seek(c *audit.Cursor, from Start, log *audit.Log) error {
	if from.After == "" {
		return c.SeekTime(proto.At(from.Since))
	}
	var err error
	if r.after, err = parsePosition(from.After); err != nil {
		return err
	}
	head, _ := log.Head()
	if r.after.seq > head {
		return r.lost(head, "the event is not in this daemon's log, which was restored or has lost its end; events "+
			"continue with the next one", c)
	}
	all, err := c.SeekAfter(r.after.seq - 1)
	if err != nil || all {
		return err
	}
	r.after = position{}
	return r.fn(gap("the event is too old: the daemon has the newest events only, and they follow"))
}

// lost reports that the client's position is unknown, and continues after entry seq.
func (r *reader) lost(seq int64, why string, c *audit.Cursor) error {
	r.after = position{}
	if err := r.fn(gap(why)); err != nil {
		return err
	}
	_, err := c.SeekAfter(seq)
	return err
}

func gap(note string) proto.FeedEvent {
	return proto.FeedEvent{Type: proto.FeedGap, Timestamp: proto.At(time.Now()), Note: note}
}

// read passes the events up to the present end of the log.
func (r *reader) read(ctx context.Context, c *audit.Cursor) error {
	return c.Read(ctx, audit.Reader{Wanted: r.wanted(), Entry: r.entry, Gap: func(from, to int64) error {
		return r.fn(gap(fmt.Sprintf("%d entries of the log are missing here", to-from+1)))
	}})
}

// wanted returns a fast check that no line of an event fails.
func (r *reader) wanted() func([]byte) bool {
	var marks [][]byte
	for name, value := range map[string]string{"owner": r.filter.Owner, "container_id": r.filter.Container} {
		text, err := json.Marshal(value)
		ascii := !bytes.ContainsFunc(text, func(c rune) bool { return c >= 0x7f })
		if value != "" && err == nil && ascii {
			marks = append(marks, fmt.Appendf(nil, `"%s":%s`, name, text))
		}
	}
	lost := []byte(`"act":"` + actLost + `"`)
	resumed := fmt.Appendf(nil, `{"seq":%d,`, r.after.seq)
	return func(line []byte) bool {
		for _, m := range marks {
			if !bytes.Contains(line, m) {
				return bytes.Contains(line, lost) || bytes.HasPrefix(line, resumed)
			}
		}
		return true
	}
}

// entry passes the events of one entry.
func (r *reader) entry(e proto.AuditEntry) error {
	if e.Seq == r.after.seq && !strings.HasPrefix(e.Hash, r.after.hash) {
		r.after = position{}
		if err := r.fn(gap("the event is not in this daemon's log, which was restored or has lost its end; the " +
			"events that took its place follow")); err != nil {
			return err
		}
	}
	for i, event := range eventsOf(e) {
		at := position{e.Seq, e.Hash[:hashDigits], i}
		if !r.filter.takes(event) || r.after.has(at) || r.passed.has(at) {
			continue
		}
		event.ID = at.String()
		if err := r.fn(event); err != nil {
			return err
		}
		r.passed = at
	}
	return nil
}

func (f Filter) takes(e proto.FeedEvent) bool {
	if e.Type == proto.FeedGap {
		return true
	}
	return (f.Owner == "" || e.Owner == f.Owner) && (f.Container == "" || e.ContainerID == f.Container) &&
		(len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(t string) bool { return matches(t, e.Type) }))
}

func matches(pattern string, t proto.FeedType) bool {
	return pattern == string(t) || strings.HasSuffix(pattern, ".") && strings.HasPrefix(string(t), pattern)
}

// check refuses types that do not exist.
func (f Filter) check() error { return CheckTypes(f.Types) }

// CheckTypes refuses types, and beginnings of types, that do not exist.
func CheckTypes(types []string) error {
	for _, want := range types {
		if !slices.ContainsFunc(proto.FeedTypes, func(t proto.FeedType) bool { return matches(want, t) }) {
			return proto.Invalid("type", "type %.80q is no type of event; use one such as %q, or %q for all that "+
				"begin so", want, proto.FeedExecEnded, "exec.")
		}
	}
	return nil
}

// A position is the place of an event: the number of its entry, the beginning of that entry's hash, and which of the
// entry's events it is. The hash tells whether an entry of this number is still the same one after a power cut or a
// restore.
type position struct {
	seq  int64
	hash string
	sub  int
}

const hashDigits = 8

func (p position) String() string { return fmt.Sprintf("%d-%s-%d", p.seq, p.hash, p.sub) }

// has reports whether the event at q is this one or one before.
func (p position) has(q position) bool { return q.seq < p.seq || q.seq == p.seq && q.sub <= p.sub }

func parsePosition(id string) (p position, err error) {
	parts := strings.Split(id, "-")
	bad := proto.Invalid("after", "%.80q is not the ID of an event; leave it out to begin without one", id)
	if len(parts) != 3 || len(parts[1]) != hashDigits {
		return p, bad
	}
	seq, err1 := strconv.ParseUint(parts[0], 10, 62)
	sub, err2 := strconv.ParseUint(parts[2], 10, 8)
	if err1 != nil || err2 != nil || seq == 0 {
		return p, bad
	}
	return position{int64(seq), parts[1], int(sub)}, nil
}

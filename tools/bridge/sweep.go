package bridge

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/tools/approval"
	"berth/tools/bridge/codeapi"
)

// Bounds of the ended calls that are stored for each container; the newest stay, and calls of a running command.
const (
	maxKept    = 1000
	maxKeptAge = 7 * 24 * time.Hour
)

// Swept is what one Sweep did.
type Swept struct {
	Ended     int // calls that timed out, or whose code has gone
	Forgotten int // old calls
}

// Counts are the counts by the names that log and metrics have for them.
func (w Swept) Counts() map[string]int {
	return map[string]int{"ended": w.Ended, "forgotten": w.Forgotten}
}

// Sweep ends calls of an earlier daemon that were not taken up again, and forgets old ones.
func (b *Bridge) Sweep(ctx context.Context) (done Swept, err error) {
	if b.sessions == nil {
		return done, nil
	}
	b.dropDispatchers()
	done.Ended, done.Forgotten, err = b.sweeper.Sweep(b.cfg.Now(), func() (int, error) { return b.endStale(ctx) },
		b.prune)
	return done, err
}

// dropDispatchers drops those of removed containers, and the budgets of ended commands.
func (b *Bridge) dropDispatchers() {
	b.mu.Lock()
	var gone []*dispatcher
	for id, d := range b.dispatchers {
		if b.sessions.Any(id) == nil {
			gone = append(gone, d)
			delete(b.dispatchers, id)
		}
	}
	left := maps.Clone(b.dispatchers)
	b.mu.Unlock()
	for _, d := range gone {
		d.close()
	}
	for _, d := range left {
		d.mu.Lock()
		spent := maps.Clone(d.spent)
		d.mu.Unlock()
		for exec := range spent {
			if !d.runs(exec) {
				d.mu.Lock()
				delete(d.spent, exec)
				d.mu.Unlock()
			}
		}
	}
}

// has reports whether a call is in memory, where it ends by itself.
func (b *Bridge) has(r record) bool {
	b.mu.Lock()
	d := b.dispatchers[r.ContainerID]
	b.mu.Unlock()
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[callKey{r.ExecID, r.Client}] != nil
}

// stale returns how a call ends that is live in the ledger only. It returns no state while the call may go on: its
// command runs and may take it up.
func (b *Bridge) stale(r record, now time.Time) proto.ToolCallState {
	runs := false
	if s := b.sessions.Any(r.ContainerID); s != nil {
		runs = b.dispatcher(s).runs(r.ExecID)
	}
	switch {
	case runs && (r.State != proto.CallParked || now.Before(r.ExpiresAt.Time)) || b.has(r):
		return ""
	case r.State == proto.CallRunning:
		return proto.CallLost
	case r.State == proto.CallParked && runs:
		return proto.CallExpired
	}
	return proto.CallCanceled
}

// endStale first looks without writing: most of the time it finds nothing.
func (b *Bridge) endStale(ctx context.Context) (n int, err error) {
	now, live := b.cfg.Now(), []record{}
	err = b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return records.EachLive(tx, "", func(r record) error { live = append(live, r); return nil })
	})
	if err != nil {
		return 0, err
	}
	for _, r := range live {
		if b.stale(r, now) == "" {
			continue
		}
		ended, err := b.endOne(r, now)
		if err != nil {
			return n, err
		}
		if ended {
			n++
		}
	}
	return n, nil
}

// endOne ends a stale call, unless it was taken up meanwhile.
func (b *Bridge) endOne(r record, now time.Time) (ended bool, err error) {
	err = b.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		ended = false
		fresh, err := findCall(tx, r.ContainerID, r.ID)
		if err != nil || fresh.State != r.State {
			return err
		}
		if fresh.State = b.stale(fresh, now); fresh.State == "" {
			return nil
		}
		ended = true
		fresh.EndedAt, fresh.Error = proto.AtOrNil(now),
			codeapi.Fail(codeapi.RuntimeError, "the code did not come back for the call")
		return fresh.put(tx)
	})
	if proto.CodeOf(err) == proto.NotFound {
		err = nil
	}
	return ended, err
}

// prune forgets surplus calls, and all calls of removed containers.
func (b *Bridge) prune(now time.Time) (n int, err error) {
	var surplus []record
	err = b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		byContainer := map[string][]record{}
		err := ledger.Each(tx, bucketCalls, "", func(_ string, r record) {
			r.Input, r.Error = nil, nil
			byContainer[r.ContainerID] = append(byContainer[r.ContainerID], r)
		})
		for container, list := range byContainer {
			surplus = append(surplus, b.surplus(container, list, now)...)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	err = b.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		for _, r := range surplus {
			if err := errors.Join(tx.Delete(bucketCalls, r.key()), tx.Delete(bucketIDs, r.clientKey()),
				tx.Delete(bucketLive, r.ID)); err != nil {
				return err
			}
		}
		return b.dropSessions(tx)
	})
	return len(surplus), err
}

// surplus returns the calls of a container that are too many or too old. list has the oldest first.
func (b *Bridge) surplus(container string, list []record, now time.Time) []record {
	s := b.sessions.Any(container)
	if s == nil {
		return list
	}
	d := b.dispatcher(s)
	kept := make([]approval.Candidate[record], len(list))
	for i, r := range list {
		kept[i] = approval.Candidate[record]{Record: r, Old: now.Sub(r.CreatedAt.Time) > maxKeptAge,
			Pinned: !r.State.Over() || d.runs(r.ExecID)}
	}
	return approval.Surplus(approval.Limits{Count: maxKept}, kept)
}

// dropSessions forgets the provider sessions of removed containers.
func (b *Bridge) dropSessions(tx *ledger.Tx) error {
	var keys []string
	if err := tx.Scan(bucketSessions, "", func(key string, _ []byte) (bool, error) {
		if id, _, _ := strings.Cut(key, "/"); b.sessions.Any(id) == nil {
			keys = append(keys, key)
		}
		return true, nil
	}); err != nil {
		return err
	}
	for _, key := range keys {
		if err := tx.Delete(bucketSessions, key); err != nil {
			return err
		}
	}
	return nil
}

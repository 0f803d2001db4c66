package asking

import (
	"context"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/tools/approval"
)

// records are the records of all asks, by owner. Live are those that wait, and those whose decision counts now.
var records = approval.Records[record]{Bucket: "network_asks", Live: "network_asks_live"}

// A record is the ledger's record of an ask.
type record struct {
	proto.Approval
	Owner string   `json:"owner"`
	Execs []string `json:"execs,omitempty"` // a decision once counts until these commands have ended
}

// put writes the record. over: it neither waits nor counts any more.
func (r record) put(over bool) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error { return records.Put(tx, r.Owner, r.ID, r, over) }
}

// shown describes the ask. The caller holds the desk's mu.
func (a *ask) shown() proto.Approval {
	v := a.rec.Approval
	v.Connections = a.conns
	return v
}

func (r record) scope() string {
	if r.For == proto.ScopeLife {
		return "for the container's life"
	}
	return "once"
}

// request describes the record to the package that decides.
func (r record) request() approval.Request {
	return approval.Request{Kind: "approval", ID: r.ID, State: string(r.State), Parked: r.State == proto.ApprovalParked,
		ExpiresAt: r.ExpiresAt, Decision: r.Decision, TooLate: "no longer waits: its time is over"}
}

// again answers a decision about what does not wait. The same decision is no conflict: a client may have lost the
// answer to its first request.
func (r record) again(to proto.ApprovalState, scope proto.ApprovalScope) (proto.Approval, error) {
	switch {
	case r.State == to && r.For == scope:
		return r.Approval, nil
	case r.State == proto.ApprovalExpired:
		return proto.Approval{}, proto.Errorf(proto.Expired, "", r.ID, "approval %s no longer waits: its time is "+
			"over", r.ID)
	}
	return proto.Approval{}, r.request().Refused()
}

// Bounds of the ended records that are stored for each owner; the newest stay.
const (
	maxKept    = 1000
	maxKeptAge = 7 * 24 * time.Hour
)

// Swept is what one Sweep did.
type Swept struct {
	Ended     int // asks of containers that have gone
	Forgotten int // old records
}

// Counts are the counts by the names that log and metrics have for them.
func (w Swept) Counts() map[string]int {
	return map[string]int{"ended": w.Ended, "forgotten": w.Forgotten}
}

// Sweep ends asks of containers that have gone, and forgets old records.
func (d *Desk) Sweep(context.Context) (done Swept, err error) {
	done.Ended, done.Forgotten, err = d.sweeper.Sweep(d.cfg.Now(), d.endGone, d.prune)
	return done, err
}

func (d *Desk) endGone() (n int, _ error) {
	d.mu.Lock()
	parked := map[*ask]record{}
	for _, a := range d.byID {
		if a.rec.State == proto.ApprovalParked {
			parked[a] = a.rec
		}
	}
	d.mu.Unlock()
	for a, rec := range parked {
		if _, err := d.sessions.Get(rec.Owner, rec.ContainerID); err != nil { // it may wait for a guest
			d.expire(a, proto.ApprovalCanceled)
			n++
		}
	}
	return n, nil
}

func (d *Desk) prune(now time.Time) (n int, err error) {
	var surplus []record
	err = d.cfg.Ledger.View(func(tx *ledger.Tx) error {
		live := map[string]bool{}
		byOwner := map[string][]approval.Candidate[record]{}
		if err := ledger.Each(tx, records.Live, "", func(id, _ string) { live[id] = true }); err != nil {
			return err
		}
		err := ledger.Each(tx, records.Bucket, "", func(_ string, r record) {
			byOwner[r.Owner] = append(byOwner[r.Owner], approval.Candidate[record]{Record: r,
				Old: now.Sub(r.CreatedAt.Time) > maxKeptAge, Pinned: live[r.ID]})
		})
		for _, list := range byOwner {
			surplus = append(surplus, approval.Surplus(approval.Limits{Count: maxKept}, list)...)
		}
		return err
	})
	if err != nil || len(surplus) == 0 {
		return 0, err
	}
	return len(surplus), d.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		for _, r := range surplus {
			if err := tx.Delete(records.Bucket, r.Owner+"/"+r.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

package gateway

import (
	"encoding/json"
	"slices"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// bucketTurns holds a turnRecord by the hash of its request, in hex. No other package uses it.
const bucketTurns = "gateway_turns"

// maxRecord is the limit for the record of a turn, in bytes. A larger turn does not outlive the daemon.
const maxRecord = 8 << 20

// A turnRecord is a turn as a later daemon continues it, without repeating what was done.
type turnRecord struct {
	ID        string            `json:"id"`
	Owner     string            `json:"owner"`
	Container string            `json:"container,omitempty"`
	Made      bool              `json:"made,omitempty"`  // the container was created for this turn
	Heard     bool              `json:"heard,omitempty"` // a client knows of the container
	Skills    json.RawMessage   `json:"skills,omitempty"`
	Head      json.RawMessage   `json:"head,omitempty"`
	Content   []json.RawMessage `json:"content,omitempty"` // empty where Final is set
	Usage     json.RawMessage   `json:"usage,omitempty"`
	Begun     string            `json:"begun,omitempty"` // ID of the call that runs
	Final     json.RawMessage   `json:"final,omitempty"`
	At        time.Time         `json:"at"`
}

// writeRecord writes the turn to the ledger before a call runs, and once all have run; begun is the call's ID. A turn
// that cannot be written continues: it is lost only if the daemon dies in the middle of it.
func (t *turn) writeRecord(begun string) {
	rec := turnRecord{ID: t.id, Owner: t.request.Owner, Made: t.container.created, Heard: t.container.told,
		Skills: t.container.skills, Head: t.answer.Head, Content: t.answer.Content, Usage: t.answer.Usage, Begun: begun,
		At: time.Now()}
	if ref := t.container.ref(); ref != nil {
		rec.Container = ref.ID
	}
	if t.answer.Final != nil {
		rec.Content, rec.Final = nil, t.answer.Final
	}
	size := len(rec.Final)
	for _, raw := range rec.Content {
		size += len(raw)
	}
	err := t.g.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		if size > maxRecord {
			return tx.Delete(bucketTurns, t.key)
		}
		return tx.Put(bucketTurns, t.key, rec)
	})
	t.journal.written = true
	if err != nil {
		t.g.cfg.Log.Warn("writing a turn to the ledger", "error", err)
	}
}

// resumeJournal gives up the call that an earlier daemon was running when it ended. A command is not given up: it has
// an idempotency key, so that running the call again finds its end.
func (t *turn) resumeJournal() error {
	rec := t.journal.saved
	if rec == nil {
		return nil
	}
	t.journal.saved = nil
	pending := t.progress.pending
	i := slices.IndexFunc(pending, func(c Call) bool { return c.ID == rec.Begun && c.Tool != Bash })
	if i < 0 {
		return nil
	}
	c := pending[i]
	t.progress.pending = slices.Delete(pending, i, i+1)
	return t.conv.Add(c, t.failCall(c, proto.Errorf(proto.Unavailable, "", c.ID,
		"the daemon was restarted while the call ran")))
}

// readRecord returns the record of a turn; nil: there is none.
func (g *Gateway) readRecord(key string) *turnRecord {
	var rec turnRecord
	var ok bool
	err := g.cfg.Ledger.View(func(tx *ledger.Tx) (err error) {
		ok, err = tx.Get(bucketTurns, key, &rec)
		return err
	})
	if err != nil || !ok {
		return nil
	}
	return &rec
}

// readRecords returns the turns that earlier daemons have left, by key, without their content: that is read when a
// request repeats the turn.
func (g *Gateway) readRecords() map[string]turnRecord {
	all := map[string]turnRecord{}
	err := g.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return tx.Scan(bucketTurns, "", func(key string, data []byte) (bool, error) {
			var rec turnRecord
			if json.Unmarshal(data, &rec) == nil {
				rec.Content, rec.Final = nil, nil
			}
			all[key] = rec
			return true, nil
		})
	})
	if err != nil {
		g.cfg.Log.Error("reading the turns of the previous daemon", "error", err)
	}
	return all
}

// eraseRecord deletes the record of a turn.
func (g *Gateway) eraseRecord(key string) {
	g.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return tx.Delete(bucketTurns, key) })
}

// dropRecord deletes the record of a turn that no request has repeated, and its container if no client knows of that.
// mu is held, so that the record is gone before another turn with the key writes its own.
func (as *attempts) dropRecord(key string, rec turnRecord) {
	as.g.eraseRecord(key)
	as.deletes.Go(func() {
		if c, _ := as.g.cfg.Containers.Find(rec.Owner, rec.Container); c != nil && rec.Made && !rec.Heard {
			as.g.deleteContainer(c)
		}
	})
}

package gateway

import (
	"encoding/json"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// bucketTurns maps the key of a turn to its turnRecord. No other package uses this bucket.
const bucketTurns = "gateway_turns"

// maxRecord is the maximum size of a turn's record, in bytes. A larger turn is lost when the daemon ends.
const maxRecord = 8 << 20

// A turnRecord is the stored state of a turn. It lets a later daemon continue the turn without repeating work.
type turnRecord struct {
	ID          string            `json:"id"`
	Request     string            `json:"request,omitempty"`   // identity.request; "": the key of the record
	RetryKey    string            `json:"retry_key,omitempty"` // identity.retryKey
	Client      string            `json:"client,omitempty"`    // identity.client
	Attempt     int               `json:"attempt,omitempty"`   // of the last request
	Owner       string            `json:"owner"`
	Container   string            `json:"container,omitempty"`
	Made        bool              `json:"made,omitempty"`       // the container was created for this turn
	Heard       bool              `json:"heard,omitempty"`      // the client was told the container's ID
	Confinement proto.Confinement `json:"confinement,omitzero"` // of the container
	Skills      json.RawMessage   `json:"skills,omitempty"`
	Head        json.RawMessage   `json:"head,omitempty"`
	Content     []json.RawMessage `json:"content,omitempty"` // empty if Final is set
	Usage       json.RawMessage   `json:"usage,omitempty"`
	Running     []string          `json:"running,omitempty"` // IDs of the running calls
	Begun       string            `json:"begun,omitempty"`   // ID of the running call; version 0.1.0 wrote it
	Final       json.RawMessage   `json:"final,omitempty"`
	At          time.Time         `json:"at"`

	finished bool // Final was set before readRecords dropped it
}

// identity returns the identity of the turn, as far as the record has it. Version 0.1.0 wrote one record for all equal
// requests. Its key is the hash of the request, which covers the idempotency key. asked is the identity of a request.
func (rec *turnRecord) identity(key string, asked identity) identity {
	switch {
	case rec.Request != "":
		return identity{rec.Request, rec.RetryKey, rec.Client}
	case key == asked.request:
		return identity{key, asked.retryKey, ""}
	}
	return identity{request: key}
}

// over reports whether the client of the turn may have its answer, so that a request without an idempotency key must
// not continue the turn. Version 0.1.0 kept the records of answered turns.
func (rec *turnRecord) over(asked identity) bool {
	return rec.Request == "" && rec.finished && asked.retryKey == ""
}

// writeRecord writes the turn to the ledger: before calls run, with these calls in running, and after all calls have
// run. A turn whose record cannot be written continues. It is lost only if the daemon dies before the turn ends.
func (t *turn) writeRecord(running ...*pendingCall) {
	rec := turnRecord{ID: t.id, Request: t.identity.request, RetryKey: t.identity.retryKey, Client: t.identity.client,
		Attempt: t.request.Attempt, Owner: t.request.Owner, Made: t.container.created, Heard: t.container.told,
		Skills: t.container.skills, Head: t.answer.Head, Content: t.answer.Content, Usage: t.answer.Usage,
		At: time.Now()}
	for _, c := range running {
		rec.Running = append(rec.Running, c.ID)
	}
	if t.container.c != nil {
		rec.Container, rec.Confinement = t.container.c.Ref().ID, t.container.like
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

// readRecord returns the record of a turn, or nil if there is none.
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

// readRecords returns the turns of earlier daemons by key, without their content. The content is read when a request
// repeats the turn.
func (g *Gateway) readRecords() map[string]turnRecord {
	all := map[string]turnRecord{}
	err := g.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return tx.Scan(bucketTurns, "", func(key string, data []byte) (bool, error) {
			var rec turnRecord
			if json.Unmarshal(data, &rec) == nil {
				rec.finished = len(rec.Final) > 0
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

// eraseRecord deletes the turn's record. A daemon that starts after it has returned does not see the record.
func (t *turn) eraseRecord() {
	t.journal.written = false
	err := t.g.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return tx.Delete(bucketTurns, t.key) })
	if err != nil {
		t.g.cfg.Log.Warn("erasing a turn from the ledger", "error", err)
	}
}

// eraseRecord deletes the record of a turn, soon.
func (g *Gateway) eraseRecord(key string) {
	g.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return tx.Delete(bucketTurns, key) })
}

// dropRecord deletes the record of a turn that no request has continued. It also deletes the turn's container if the
// client was not told the container's ID.
func (g *Gateway) dropRecord(key string, rec turnRecord) {
	g.eraseRecord(key)
	g.deletes.Go(func() {
		if c, _ := g.cfg.Containers.Find(rec.Owner, rec.Container); c != nil && rec.Made && !rec.Heard {
			g.deleteContainer(c)
		}
	})
}

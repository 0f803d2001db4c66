package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// bucketTurns has a turnRecord by the hash of its request, in hex. It is this package's alone.
const bucketTurns = "gateway_turns"

// maxRecord bounds what is written down of a turn, in bytes; a larger one is lost with the daemon.
const maxRecord = 8 << 20

// A turnRecord is a turn as a later daemon goes on with it: what was done is not done again.
type turnRecord struct {
	ID        string            `json:"id"`
	Owner     string            `json:"owner"`
	Container string            `json:"container,omitempty"`
	Made      bool              `json:"made,omitempty"` // the container, for this turn
	Heard     bool              `json:"heard,omitempty"`
	Skills    json.RawMessage   `json:"skills,omitempty"`
	Head      json.RawMessage   `json:"head,omitempty"`
	Content   []json.RawMessage `json:"content,omitempty"`
	Usage     json.RawMessage   `json:"usage,omitempty"`
	Begun     string            `json:"begun,omitempty"` // ID of the call that is being run
	Final     json.RawMessage   `json:"final,omitempty"`
	At        time.Time         `json:"at"`
}

// note writes a turn down before a call is run, and once all are; begun is the call's ID. A turn that cannot be
// written down goes on: only a daemon that dies in the middle of it would miss that.
func (t *turn) note(begun string) {
	rec := turnRecord{ID: t.id, Owner: t.q.Owner, Made: t.box.made, Heard: t.heard, Skills: t.box.skills,
		Content: t.content, Usage: t.usage, Begun: begun, At: time.Now()}
	if t.box.s != nil {
		rec.Container = t.box.s.ID()
	}
	if t.head != nil {
		rec.Head = t.head.raw()
	}
	if t.final.get("content") != nil {
		rec.Content, rec.Final = nil, t.final.raw()
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
	t.noted = true
	if err != nil {
		t.g.cfg.Log.Warn("a turn could not be written down", "error", err)
	}
}

// recorded is the turn of an earlier daemon; nil: there is none.
func (g *Gateway) recorded(key string) *turnRecord {
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

// erase takes a turn out of the ledger.
func (g *Gateway) erase(key string) {
	g.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return tx.Delete(bucketTurns, key) })
}

// leftovers are the turns that earlier daemons wrote down, by their keys.
func (g *Gateway) leftovers() map[string]turnRecord {
	all := map[string]turnRecord{}
	err := g.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return tx.Scan(bucketTurns, "", func(key string, data []byte) (bool, error) {
			var rec turnRecord
			if json.Unmarshal(data, &rec) == nil {
				rec.Content, rec.Final = nil, nil // they are read when somebody comes for them
			}
			all[key] = rec
			return true, nil
		})
	})
	if err != nil {
		g.cfg.Log.Error("reading the turns of the daemon before", "error", err)
	}
	return all
}

// drop erases a turn that nobody came for, with the container that nobody heard of. Called with mu held, so that the
// record is gone before another turn has the key and writes its own.
func (as *attempts) drop(key string, rec turnRecord) {
	as.g.erase(key)
	as.discards.Go(func() {
		if s, _ := as.g.cfg.Sessions.Get(rec.Owner, rec.Container); s != nil && rec.Made && !rec.Heard {
			as.g.discard(s)
		}
	})
}

// restore has a turn be where an earlier daemon left it. Its request is prepared by then.
func (t *turn) restore(rec *turnRecord) error {
	if final, err := parseObject(rec.Final); err == nil {
		t.final = final
		rec.Content, err = parseArray(final.get("content"))
		if err != nil {
			return err
		}
	}
	if head, err := parseObject(rec.Head); err == nil {
		t.head = head
	}
	t.usage, t.box.skills = rec.Usage, rec.Skills
	t.h.survey(thisTurn, object{}.with("content", joined(rec.Content)))
	fresh := true
	for _, raw := range rec.Content {
		t.asked = t.asked || !strings.HasSuffix(kindOf(raw), resultSuffix)
		t.content = append(t.content, raw)
		fresh = t.h.block(thisTurn, "assistant", raw, fresh)
		if o, err := parseObject(raw); err == nil {
			t.todo = slices.DeleteFunc(t.todo, func(c call) bool { return c.id == o.text("tool_use_id") })
		}
	}
	t.todo = append(t.todo, t.h.unanswered()...)
	for i, c := range t.todo {
		if c.id == rec.Begun && c.name != toolBash { // a command has a key, and its end is known
			t.todo = slices.Delete(t.todo, i, i+1)
			lost := t.failed(c, proto.Errorf(proto.Unavailable, "", c.id,
				"the daemon was restarted while it ran")).raw()
			t.content = append(t.content, lost)
			t.h.block(thisTurn, "assistant", lost, false)
			break
		}
	}
	return nil
}

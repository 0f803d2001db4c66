// Package refusals keeps what the network has refused to one session lately, so that the answer of a command can say
// it: many programs do not tell why a connection failed. It also turns reports of the network into entries of the audit
// log.
package refusals

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"berth/egress"
	"berth/proto"
)

// Audit actions.
const (
	actionBegin  = "egress.begin"
	actionRefuse = "egress.refuse"
	actionEnd    = "egress.end"
	actionAsk    = "network_ask.park"
)

// most bounds what is kept, and shown what one command is told.
const (
	most  = 64
	shown = 5
)

// A Book keeps the refusals of one session, and what people were asked about it. It is safe for concurrent use; the
// zero Book is empty.
type Book struct {
	mu   sync.Mutex
	list []refusal // the latest, the oldest first
}

type refusal struct {
	at   time.Time
	text string
}

// Entry returns a report as an entry of the audit log, and keeps a refusal. hide replaces secrets: code may leak one in
// a host name.
func (b *Book) Entry(v egress.Report, hide func(string) string) proto.AuditEntry {
	action := actionRefuse
	switch {
	case v.Began:
		action = actionBegin
	case v.Over:
		action = actionEnd
	case v.Asked != "":
		action = actionAsk
	}
	v.Host = hide(v.Host)
	e := proto.AuditEntry{Act: action, Outcome: v.Outcome, Actor: proto.ActorContainer, Note: hide(v.Note),
		Egress: &v.AuditEgress}
	switch {
	case v.Asked != "":
		e.Item, e.Egress = v.Asked+" "+net.JoinHostPort(v.Host, strconv.Itoa(int(v.Port))), nil
		b.add("the network asks a person: " + e.Note)
	case v.Began && e.Note != "":
		b.add("the network let a connection through: " + e.Note)
	case v.Outcome == string(proto.PermissionDenied):
		b.add("the network refused a connection: " + e.Note)
	}
	return e
}

func (b *Book) add(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == most {
		b.list = slices.Delete(b.list, 0, 1)
	}
	b.list = append(b.list, refusal{time.Now(), text})
}

// Notes returns what was refused since a moment, each once. The network does not know which command connects: commands
// that run at the same time get the same notes.
func (b *Book) Notes(since time.Time) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var notes []string
	more := 0
	for _, r := range b.list {
		note := r.text
		switch {
		case r.at.Before(since) || slices.Contains(notes, note):
		case len(notes) == shown:
			more++
		default:
			notes = append(notes, note)
		}
	}
	if more > 0 {
		notes = append(notes, fmt.Sprintf("the network refused %d more; see egress.refuse in the audit log", more))
	}
	return notes
}

package refusals

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/egress"
	"berth/proto"
)

func refuse(b *Book, host string) proto.AuditEntry {
	return b.Entry(egress.Report{Outcome: string(proto.PermissionDenied), Note: host + " is not on the list",
		AuditEgress: proto.AuditEgress{Host: host}}, func(s string) string { return strings.ReplaceAll(s, "secret", "***") })
}

// A command is told what was refused while it ran, each once and without secrets, and of many how many more.
func TestNotes(t *testing.T) {
	b := &Book{}
	if e := refuse(b, "before.test"); e.Act != "egress.refuse" || e.Actor != proto.ActorContainer {
		t.Errorf("%+v", e)
	}
	since := time.Now()
	for range 3 {
		refuse(b, "a.test")
	}
	if e := refuse(b, "secret.test"); e.Egress.Host != "***.test" || e.Note != "***.test is not on the list" {
		t.Errorf("%+v %+v", e, e.Egress)
	}
	b.Entry(egress.Report{Began: true, Outcome: proto.AuditOK}, strings.Clone)
	b.Entry(egress.Report{Outcome: string(proto.Unavailable), Note: "cannot be reached"}, strings.Clone)
	want := []string{"the network refused a connection: a.test is not on the list",
		"the network refused a connection: ***.test is not on the list"}
	if got := b.Notes(since); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := b.Notes(time.Now()); len(got) > 0 {
		t.Errorf("a later command is told %q", got)
	}
	for i := range 100 {
		refuse(b, fmt.Sprint(i))
	}
	if got := b.Notes(since); len(got) != 6 || !strings.Contains(got[5], "refused 59 more") {
		t.Errorf("%d notes, the last %q", len(got), got[len(got)-1])
	}
}

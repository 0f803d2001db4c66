package asking

import (
	"fmt"

	"berth/egress"
	"berth/proto"
	"berth/session"
)

// Keep has decisions about n hosts of a session count, until forget is called.
func Keep(d *Desk, s *session.Session, n int) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var kept []*ask
	for i := range n {
		t := egress.Target{Name: fmt.Sprintf("kept%d.example", i), Port: 443}
		kept = append(kept, d.keep(record{Owner: s.Owner(), Approval: proto.Approval{ID: proto.NewID(proto.AskPrefix),
			ContainerID: s.ID(), Item: t.String(), State: proto.ApprovalApproved}}, t))
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, a := range kept {
			d.drop(a)
		}
	}
}

package stats

import (
	"sync"

	"berth/proto"
)

// Traffic counts what containers exchanged with other hosts. The proxy's reports in the audit log tell it.
type Traffic struct {
	mu          sync.Mutex
	byContainer map[string]proto.StatsNetwork
}

// NewTraffic returns counters at zero.
func NewTraffic() *Traffic { return &Traffic{byContainer: map[string]proto.StatsNetwork{}} }

// Observe counts an entry of the audit log, if it is the end of a request of a container.
func (t *Traffic) Observe(e proto.AuditEntry) {
	if e.Egress == nil || e.Egress.Sent == 0 && e.Egress.Received == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byContainer[e.ContainerID]
	n.SentBytes += e.Egress.Sent
	n.ReceivedBytes += e.Egress.Received
	t.byContainer[e.ContainerID] = n
}

func (t *Traffic) of(container string) proto.StatsNetwork {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byContainer[container]
}

// keep forgets all containers but these.
func (t *Traffic) keep(there map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.byContainer {
		if !there[id] {
			delete(t.byContainer, id)
		}
	}
}

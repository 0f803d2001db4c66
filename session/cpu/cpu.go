// Package cpu divides the CPU time of a container among the API keys that use it.
//
// The kernel's count of the container's cgroup decides how much there is to pay. So processes that a command leaves
// behind are paid for, and nothing that the guest reports makes the sum smaller or larger. Package session, the only
// caller, reads the count and charges the keys.
package cpu

import (
	"sync"

	"berth/state/ledger"
)

// Bucket has the State of each container, by ID.
const Bucket = "session_cpu"

// idle is the CPU time in seconds that is not charged if no command ran since the last call: about what a sweep costs
// the guest.
const idle = 0.01

// A State is what the next daemon needs of a Meter.
type State struct {
	Generation int64   `json:"generation"`
	Charged    float64 `json:"charged"`       // seconds of the kernel's count that are paid for, or not to be paid
	Key        string  `json:"key,omitempty"` // the key of the last command that ended
}

// A Meter knows which part of the kernel's count of one container is paid for. The zero value is a container whose
// whole count is to be paid.
type Meter struct {
	mu    sync.Mutex
	state State
}

// A Command is a command that has ended. Seconds is the guest's report.
type Command struct {
	Key     string
	Seconds float64
}

// A Share is what a key has to pay.
type Share struct {
	Key     string
	Seconds float64
}

// Restore continues from the state of the last daemon.
func (m *Meter) Restore(s State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
}

// Begin starts a generation. What its sandbox used until it was ready is not charged. A negative count is unknown.
func (m *Meter) Begin(generation int64, count float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Generation, m.state.Charged = generation, max(0, count)
}

// Charge divides what the kernel's count has grown by since the last call. The command that has ended pays what the
// guest reports, as far as the count has grown. The keys of running commands pay the rest in equal parts. If none runs,
// the key of the last command does: its processes went on. With an unknown count, which is negative, the report is all
// there is.
func (m *Meter) Charge(generation int64, count float64, ended *Command, running []string) (due []Share, now State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.Generation != generation {
		m.state.Generation, m.state.Charged = generation, 0
	}
	if count < 0 && ended != nil {
		count = m.state.Charged + ended.Seconds
	}
	grown := max(0, count-m.state.Charged)
	m.state.Charged = max(m.state.Charged, count)
	if ended != nil {
		own := min(ended.Seconds, grown)
		m.state.Key = ended.Key
		grown -= own
		due = append(due, Share{ended.Key, own})
	}
	if len(running) == 0 {
		if ended == nil && grown < idle {
			return due, m.state
		}
		running = []string{m.state.Key}
	}
	for _, key := range running {
		if grown > 0 {
			due = append(due, Share{key, grown / float64(len(running))})
		}
	}
	return due, m.state
}

// Store writes a state down, unless the container is removed by then. It goes behind the charges, so that a crash loses
// no more than this: what was charged is then charged again.
func Store(db *ledger.DB, container string, s State, removed func() bool) {
	db.UpdateLater(func(tx *ledger.Tx) error {
		if removed() {
			return nil
		}
		return tx.Put(Bucket, container, s)
	})
}

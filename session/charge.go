package session

import (
	"berth/proto"
	"berth/session/cpu"
)

// chargeCPU charges API keys for what the sandbox has used since the last call. ended is the command that has ended, or
// nil.
func (s *Session) chargeCPU(ended *Exec, reported float64) {
	var command *cpu.Command
	if ended != nil {
		command = &cpu.Command{Key: ended.key, Seconds: max(0, reported)}
	}
	var running []string
	s.mu.Lock()
	for _, e := range s.running {
		if e != ended {
			running = append(running, e.key)
		}
	}
	generation, known := s.rec.Generation, s.rec.State != proto.StateCreating
	s.mu.Unlock()
	due, now := s.cpu.Charge(generation, s.core.cfg.Runtime.CPUSeconds(s.id), command, running)
	for _, d := range due {
		s.core.cfg.Quotas.Ran(d.Key, d.Seconds)
	}
	if len(due) > 0 && known {
		cpu.Store(s.core.cfg.Ledger, s.id, now, func() bool { return s.is(&s.removed) })
	}
}

package session

// A Meter is a Runtime that can also tell, from outside of a sandbox, what the sandbox has used and
// been refused. Without one, ends are told by what the guest sees alone.
type Meter interface {
	// Measure reads the meters of sandbox id over a workspace. It is fast, never fails, and takes nothing
	// of what is asked of it from inside the sandbox; what it cannot tell it says so.
	Measure(id, workspace string) Reading
}

// A Reading is what a Meter shows at one moment.
type Reading struct {
	OOMKills    int64 // processes that the kernel killed for memory since the start; -1 unknown
	PIDRefusals int64 // processes and threads that it refused since then; -1 unknown
	Workspace   Space
	Layer       Space // the writable layer: all that is neither the workspace nor in memory
	Pool        Space // what workspaces and layers share
}

// unread is the reading of a Runtime that is no Meter.
var unread = Reading{OOMKills: -1, PIDRefusals: -1}

// A Space is a file system with a limit, in bytes. The zero Space is one that is not known.
type Space struct{ Used, Limit int64 }

// spareBytes is how much may be left in a space that programs find full: a file system refuses what does not fit
// as a whole, and reserves more for a change than it then takes. Measured: a flood of empty files stops with some
// 300 KB left, one of data with 16 KB.
const spareBytes = 1 << 20

// Full reports whether next to nothing fits any more.
func (s Space) Full() bool { return s.Limit > 0 && s.Limit-s.Used < spareBytes }

// measure reads the meters of s.
func (s *Session) measure() Reading {
	m, ok := s.core.cfg.Runtime.(Meter)
	if !ok {
		return unread
	}
	return m.Measure(s.id, s.workspace)
}

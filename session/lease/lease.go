package lease

import (
	"encoding/json"
	"time"

	"berth/proto"
)

// A Lease says when a session ends, and what happens then. It is one field of the session's record, so that all of it
// changes together. The zero Lease is rolling and stops the session. Times are those of a Clock.
type Lease struct {
	Mode  proto.LeaseMode   `json:"mode,omitempty"`   // "": rolling
	AtEnd proto.LeaseAction `json:"at_end,omitempty"` // "": stop
	// rolling: from the last use to the end; absolute: how long it lasts if no end was set
	Idle time.Duration `json:"idle,omitempty"`
	// absolute: the end. rolling: an end that was set; a use moves the end past it, and never to before it
	End time.Time `json:"end,omitzero"`
	// rolling: when End was set to something that may be earlier than a use would have it; until a later use, End holds
	Set time.Time `json:"set,omitzero"`
	// absolute: how long the lease lasts that begins when a use wakes the session after its end
	Span time.Duration `json:"span,omitempty"`
	// since when the session is kept paused, on request or by its lease; it counts only while the session is paused
	Paused time.Time `json:"paused,omitzero"`
}

// UnmarshalJSON also reads what earlier daemons wrote: the end that an extension had set, alone.
func (l *Lease) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*l = Lease{}
		return json.Unmarshal(data, &l.End)
	}
	type fields Lease
	return json.Unmarshal(data, (*fields)(l))
}

// Absolute reports whether uses leave the end where it is.
func (l Lease) Absolute() bool { return l.Mode == proto.LeaseAbsolute }

// Describe returns the lease as clients see it, with its end by the wall clock.
func (l Lease) Describe(ends time.Time) proto.Lease {
	d := proto.Lease{Mode: proto.LeaseRolling, AtEnd: l.Action(), EndsAt: proto.At(ends)}
	if l.Absolute() {
		d.Mode = proto.LeaseAbsolute
	}
	return d
}

// Action returns what happens at the end, which is never "".
func (l Lease) Action() proto.LeaseAction {
	if l.AtEnd == "" {
		return proto.LeaseStop
	}
	return l.AtEnd
}

// Ends returns when the lease ends if the session is not used again. used is its last use.
func (l Lease) Ends(used time.Time) time.Time {
	t := used.Add(l.Idle)
	if l.Absolute() || !l.Set.IsZero() && !used.After(l.Set) || l.End.After(t) {
		return l.End
	}
	return t
}

// A Life is what else bounds a session, beside its lease.
type Life struct {
	Used   time.Time     // its last use
	State  proto.State   // running, paused or stopped
	Cap    time.Time     // when it is removed in any case
	Unused time.Time     // when it is removed if it was never used; zero: it was
	Keep   time.Duration // how long a paused session is kept
}

// Next returns what happens to a session next if it is not used, and when. Never used counts only with an absolute
// lease that has ended.
func (l Lease) Next(s Life) (proto.LeaseAction, time.Time) {
	what, when := l.Acts(s)
	if end := l.unusedEnd(s); !end.IsZero() && end.Before(when) {
		return proto.LeaseRemove, end
	}
	return what, when
}

// Following returns what Next does, as clients see it; nil for a session that is over.
func (l Lease) Following(s Life, wall func(time.Time) time.Time) *proto.NextAction {
	if s.State == proto.StateExpired {
		return nil
	}
	what, when := l.Next(s)
	return &proto.NextAction{Action: what, At: proto.At(wall(when))}
}

// Acts works like Next for a session that was used.
func (l Lease) Acts(s Life) (what proto.LeaseAction, when time.Time) {
	what, when = l.Action(), l.Ends(s.Used)
	switch {
	case s.State == proto.StatePaused && !l.Paused.IsZero():
		if when = l.Paused.Add(s.Keep); what == proto.LeasePause {
			what = proto.LeaseStop
		}
	case s.State == proto.StateStopped && what != proto.LeaseRemove:
		return proto.LeaseRemove, s.Cap // there is nothing to stop or to pause
	}
	if !when.Before(s.Cap) {
		return proto.LeaseRemove, s.Cap
	}
	return what, when
}

// Due returns what is to happen now, or "" if nothing is. It also returns since when that is due.
func (l Lease) Due(s Life, now time.Time) (what proto.LeaseAction, since time.Time) {
	if !now.Before(s.Cap) {
		return proto.LeaseRemove, s.Cap
	}
	if what, since = l.Acts(s); now.Before(since) {
		return "", since
	}
	return what, since
}

// unusedEnd returns when a session is removed that is never used: not before the end of an absolute lease, which
// its creator asked for.
func (l Lease) unusedEnd(s Life) time.Time {
	if l.Absolute() && !s.Unused.IsZero() && s.Unused.Before(l.End) {
		return l.End
	}
	return s.Unused
}

// NeverUsed reports whether a session that was never used is to be removed now.
func (l Lease) NeverUsed(s Life, now time.Time) bool {
	end := l.unusedEnd(s)
	return !end.IsZero() && !now.Before(end)
}

// Held reports whether uses of a session keep its lease from ending: not those of an absolute lease, nor of a session
// that is kept paused.
func (l Lease) Held(state proto.State) bool {
	return !l.Absolute() && (state != proto.StatePaused || l.Paused.IsZero())
}

// Over reports whether an absolute lease has ended.
func (l Lease) Over(now time.Time) bool { return l.Absolute() && !now.Before(l.End) }

// Woken returns the lease of a session that is used now, after it was paused or its absolute lease ended: an absolute
// lease then begins anew. It also reports whether that differs from l.
func (l Lease) Woken(now time.Time) (Lease, bool) {
	if l.Paused.IsZero() && !l.Over(now) {
		return l, false
	}
	if l.Paused = (time.Time{}); l.Over(now) {
		l.End = now.Add(l.span())
	}
	return l, true
}

// Anew returns the lease of a copy of the session, which begins now and lasts as long as this one did.
func (l Lease) Anew(now time.Time) Lease {
	l.End, l.Set, l.Paused = time.Time{}, time.Time{}, time.Time{}
	l, _ = l.Woken(now)
	return l
}

func (l Lease) span() time.Duration {
	if l.Span > 0 {
		return l.Span
	}
	return l.Idle
}

// Extended returns the lease with an end that is at least d from now; d of 0 sets none.
func (l Lease) Extended(d time.Duration, now time.Time) Lease {
	l.Set = time.Time{}
	if t := now.Add(d); d > 0 && t.After(l.End) {
		l.End, l.Span = t, d
	}
	return l
}

// A Moment is when a lease is made or changed.
type Moment struct {
	Now  time.Time // of the clock of leases
	Wall time.Time // the same by the wall clock, which a request's times are of
	Cap  time.Time // when the session is removed in any case
}

// Changed returns the lease as a request wants it. Nothing that the request leaves out changes, but the request counts
// as a use: a lease that becomes absolute ends when it would end without another use.
func (l Lease) Changed(req proto.LeaseRequest, at Moment) (Lease, error) {
	if req.Mode != "" && (req.Mode == proto.LeaseAbsolute) != l.Absolute() {
		l.Mode, l.End, l.Set = req.Mode, l.Ends(at.Now), time.Time{}
		l.Span = max(l.End.Sub(at.Now), 0)
	}
	if req.AtEnd != "" {
		l.AtEnd = req.AtEnd
	}
	var end time.Time
	switch {
	case req.EndsAt != nil:
		if end = at.Now.Add(req.EndsAt.Sub(at.Wall)); !end.After(at.Now) {
			return l, proto.Errorf(proto.InvalidArgument, "", "lease.ends_at", "lease.ends_at %s is in the past; "+
				"lease.ends_in_seconds of 0 ends the lease of a container now", req.EndsAt.Format(time.RFC3339))
		}
	case req.EndsInSeconds != nil:
		end = at.Now.Add(time.Duration(*req.EndsInSeconds) * time.Second)
	default:
		return l, nil
	}
	if end.After(at.Cap) {
		return l, proto.Errorf(proto.InvalidArgument, "", "lease", "the lease would end %v from now, and the "+
			"container is removed %v from now, when max_lifetime_seconds are over; choose an earlier end",
			end.Sub(at.Now).Round(time.Second), at.Cap.Sub(at.Now).Round(time.Second))
	}
	l.End, l.Set, l.Paused = end, at.Now, time.Time{}
	if end.After(at.Now) {
		l.Span = end.Sub(at.Now)
	}
	return l, nil
}

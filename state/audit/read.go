package audit

import (
	"context"
	"errors"
	"time"

	"berth/proto"
)

// A Filter chooses entries. Empty fields choose all.
type Filter struct {
	Container string
	Actor     string // an API key's ID, or another actor
	Owner     string
	Act       string    // "exec.end"; a prefix that ends in "." selects all actions below it
	Since     time.Time // at or after
	Until     time.Time // before
	Last      int       // at most this many of the selected entries, the newest; 0 is all
}

func (f Filter) takes(e proto.AuditEntry) bool {
	below := len(f.Act) > 0 && f.Act[len(f.Act)-1] == '.' && len(e.Act) > len(f.Act) && e.Act[:len(f.Act)] == f.Act
	return (f.Container == "" || e.ContainerID == f.Container) &&
		(f.Actor == "" || e.Actor == f.Actor) &&
		(f.Owner == "" || e.Owner == f.Owner) &&
		(f.Act == "" || e.Act == f.Act || below) &&
		(f.Since.IsZero() || !e.Time.Before(f.Since)) &&
		(f.Until.IsZero() || e.Time.Before(f.Until))
}

// Read calls fn with the raw lines that f selects, oldest first. It skips lines that are not valid entries; Verify
// reports those.
func Read(dir string, f Filter, fn func(line []byte) error) error {
	p := place{number: 1}
	if f.Last == 0 {
		return p.read(dir, f, fn)
	}
	kept := ring{size: f.Last}
	if err := p.read(dir, f, func(line []byte) error { kept.add(line); return nil }); err != nil {
		return err
	}
	return kept.each(fn)
}

// A place is a position in the log.
type place struct {
	number int   // of the segment
	offset int64 // in it
}

// read continues from p to the present end of the log.
func (p *place) read(dir string, f Filter, fn func(line []byte) error) error {
	now, err := take(dir)
	if err != nil {
		return err
	}
	defer now.close()
	for _, seg := range now.list {
		if seg.number < p.number {
			continue
		}
		if seg.number > p.number {
			*p = place{number: seg.number}
		}
		err := now.scan(seg, p.offset, func(line []byte) error {
			if line[len(line)-1] != '\n' {
				return errEnough // the line is being written
			}
			p.offset += int64(len(line))
			if e, err := decode(line); err != nil || !f.takes(e) {
				return nil
			}
			return fn(line)
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	return nil
}

// A ring keeps the last lines.
type ring struct {
	size  int
	lines [][]byte
	next  int // position of the oldest once it is full
}

func (r *ring) add(line []byte) {
	line = append([]byte(nil), line...)
	if len(r.lines) < r.size {
		r.lines = append(r.lines, line)
		return
	}
	r.lines[r.next] = line
	r.next = (r.next + 1) % r.size
}

func (r *ring) each(fn func([]byte) error) error {
	for i := range r.lines {
		if err := fn(r.lines[(r.next+i)%len(r.lines)]); err != nil {
			return err
		}
	}
	return nil
}

// Read is Read of this log. With follow it continues with new entries, until ctx ends or fn fails.
func (l *Log) Read(ctx context.Context, f Filter, follow bool, fn func(line []byte) error) error {
	if !follow {
		return Read(l.cfg.Dir, f, fn)
	}
	kept := ring{size: f.Last}
	first := fn
	if f.Last > 0 {
		first = func(line []byte) error { kept.add(line); return nil }
	}
	p, grown := place{number: 1}, l.growth()
	err := p.read(l.cfg.Dir, f, first)
	if err == nil {
		err = kept.each(fn)
	}
	for err == nil {
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
		grown = l.growth()
		err = p.read(l.cfg.Dir, f, fn)
	}
	return err
}

// growth returns a channel that is closed when the log has grown.
func (l *Log) growth() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grown
}

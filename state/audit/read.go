package audit

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"berth/proto"
)

// A Filter chooses entries. Empty fields choose all.
type Filter struct {
	Container string
	Actor     string // an API key's ID, or another actor
	Owner     string
	Action    string    // "exec.end"; a prefix that ends in "." selects all actions below it
	Since     time.Time // at or after
	Until     time.Time // before
	Last      int       // at most this many of the selected entries, the newest; 0 is all
}

func (f Filter) takes(e proto.AuditEntry) bool {
	below := strings.HasSuffix(f.Action, ".") && strings.HasPrefix(e.Act, f.Action) && e.Act != f.Action
	return (f.Container == "" || e.ContainerID == f.Container) &&
		(f.Actor == "" || e.Actor == f.Actor) &&
		(f.Owner == "" || e.Owner == f.Owner) &&
		(f.Action == "" || e.Act == f.Action || below) &&
		(f.Since.IsZero() || !e.Time.Before(f.Since)) &&
		(f.Until.IsZero() || e.Time.Before(f.Until))
}

// Read calls fn with the raw lines that f selects, oldest first. It skips lines that are not valid entries; Verify
// reports those.
func Read(dir string, f Filter, fn func(line []byte) error) error {
	return (&place{number: 1}).readFirst(dir, f, fn)
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

// readFirst reads like read, and passes on only the newest f.Last lines, or all if that is 0.
func (p *place) readFirst(dir string, f Filter, fn func(line []byte) error) error {
	if f.Last == 0 {
		return p.read(dir, f, fn)
	}
	var newest [][]byte
	err := p.read(dir, f, func(line []byte) error {
		newest = append(newest, bytes.Clone(line))
		newest = newest[max(0, len(newest)-f.Last):]
		return nil
	})
	for i := 0; i < len(newest) && err == nil; i++ {
		err = fn(newest[i])
	}
	return err
}

// Read is Read of this log. With follow it continues with new entries, until ctx ends or fn fails.
func (l *Log) Read(ctx context.Context, f Filter, follow bool, fn func(line []byte) error) error {
	if !follow {
		return Read(l.cfg.Dir, f, fn)
	}
	p, grown := place{number: 1}, l.growth()
	err := p.readFirst(l.cfg.Dir, f, fn)
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

package code

import (
	"context"
	"math"
	"sync"

	"berth/code/cell"
	"berth/proto"
	"berth/session"
	"berth/session/events"
)

// followCell calls each with what a cell prints and shows, until its streams end. each may be nil.
func followCell(ctx context.Context, c *cell.Cell, exec string, each func(Progress) error) error {
	if each == nil {
		return nil
	}
	if err := each(Progress{Type: proto.ProgressStart, ExecID: exec}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &merger{each: each, cell: c}
	var shown sync.WaitGroup
	shown.Go(func() {
		if err := m.followDisplays(ctx); err != nil {
			cancel(err)
		}
	})
	f := events.Follower{ID: exec, Event: m.output}
	err := f.Follow(ctx, c.Out, &session.Cursor{})
	if err == nil {
		shown.Wait() // the end of the output is the end of the displays
		err = m.rest()
	} else if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(err)
	shown.Wait()
	return err
}

// A merger puts the displays of a cell between its output, where the code showed them. A display is sent as soon as the
// output before it is, also if none follows.
type merger struct {
	each func(Progress) error
	cell *cell.Cell

	mu   sync.Mutex // held while each is called; guards what follows
	sent [2]int64   // bytes of each stream
	next int        // index of the next display
}

// followDisplays sends the displays whose output is sent already, until the cell's last one.
func (m *merger) followDisplays(ctx context.Context) error {
	for {
		changed, over := m.cell.AwaitDisplay()
		m.mu.Lock()
		err := m.ready()
		m.mu.Unlock()
		if err != nil || over {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// output sends an event of the output, with the displays that belong before its parts.
func (m *merger) output(ev proto.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := streamOf(ev)
	for {
		at, ok := m.cell.DisplayAt(m.next)
		if !ok || ev.Type == proto.EventGap || at[s] >= ev.Offset+eventBytes(ev) {
			break
		}
		before, after := split(ev, int(at[s]-ev.Offset))
		if err := m.send(s, before); err != nil {
			return err
		}
		if err := m.show(); err != nil {
			return err
		}
		ev = after
	}
	if err := m.send(s, ev); err != nil {
		return err
	}
	return m.ready()
}

// send sends a part of an event, unless it is empty.
func (m *merger) send(s int, ev proto.Event) error {
	end := ev.Offset + eventBytes(ev)
	if ev.Type == proto.EventGap {
		end = ev.Until
	} else if eventBytes(ev) == 0 {
		return nil
	}
	m.sent[s] = end
	return m.each(Progress{Type: string(ev.Type), Stream: ev.Stream, Offset: ev.Offset, Until: ev.Until, Data: ev.Data,
		DataBase64: ev.DataBase64})
}

// ready sends the displays whose output is sent already. mu is held.
func (m *merger) ready() error {
	for {
		at, ok := m.cell.DisplayAt(m.next)
		if !ok || at[0] > m.sent[0] || at[1] > m.sent[1] {
			return nil
		}
		if err := m.show(); err != nil {
			return err
		}
	}
}

// rest sends all displays that are left, after all output.
func (m *merger) rest() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = [2]int64{math.MaxInt64, math.MaxInt64}
	return m.ready()
}

// show sends the next display. mu is held.
func (m *merger) show() error {
	d := m.cell.Display(m.next)
	m.next++
	return m.each(Progress{Type: proto.ProgressDisplay, Display: &d})
}

// streamOf returns the index of an event's stream.
func streamOf(ev proto.Event) int {
	if ev.Type == proto.EventStderr || ev.Stream == proto.Stderr.String() {
		return 1
	}
	return 0
}

// eventBytes is the size of the output in an event.
func eventBytes(ev proto.Event) int64 { return int64(len(ev.Data) + len(ev.DataBase64)) }

// split divides an event of output after n bytes. It divides no character: a display within one comes before it.
func split(ev proto.Event, n int) (before, after proto.Event) {
	before, after = ev, ev
	n = max(n, 0)
	for n > 0 && ev.Data != "" && n < len(ev.Data) && ev.Data[n]&0xC0 == 0x80 {
		n--
	}
	before.Data, after.Data = ev.Data[:min(n, len(ev.Data))], ev.Data[min(n, len(ev.Data)):]
	before.DataBase64, after.DataBase64 = ev.DataBase64[:min(n, len(ev.DataBase64))],
		ev.DataBase64[min(n, len(ev.DataBase64)):]
	after.Offset += int64(n)
	return before, after
}

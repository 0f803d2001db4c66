package client

import (
	"io"
	"sync"

	"berth/proto"
)

// eventOverhead is what an event weighs beside its output, in bytes.
// A rough size of the struct and what it points to; without it a flood of empty events would weigh
// nothing.
const eventOverhead = 512

// weight is what an event counts in a queue.
func weight(e proto.Event) int { return len(e.Data) + len(e.DataBase64) + eventOverhead }

// maxQueued bounds the bytes that wait for a slow terminal, such as a paused pager. Beyond it the
// daemon is kept waiting, and drops who keeps it waiting for long.
const maxQueued = 32 << 20

// A queue holds events between the connection and whoever prints them.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	list    []proto.Event
	bytes   int
	err     error // after the last event
	closed  bool
}

// newQueue makes an empty queue.
func newQueue() *queue {
	q := &queue{}
	q.changed.L = &q.mu
	return q
}

// put appends an event, once there is room. It reports false when nobody will take it.
func (q *queue) put(e proto.Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	// The bound is asked before the event is added: a single one may exceed it, or it could never
	// pass.
	for q.bytes >= maxQueued && !q.closed {
		q.changed.Wait()
	}
	if q.closed {
		return false
	}
	q.list = append(q.list, e)
	q.bytes += weight(e)
	q.changed.Broadcast()
	return true
}

// end says that no event follows, and why.
func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
	q.changed.Broadcast()
}

// close frees whoever waits.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// take waits for the next event. After the last one it gives what end said.
func (q *queue) take() (proto.Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && q.err == nil && !q.closed {
		q.changed.Wait()
	}
	if len(q.list) == 0 {
		if q.err == nil {
			return proto.Event{}, io.ErrClosedPipe
		}
		return proto.Event{}, q.err
	}
	e := q.list[0]
	// Cleared, since the array behind the slice would keep its output from being freed.
	q.list[0] = proto.Event{}
	q.list = q.list[1:]
	q.bytes -= weight(e)
	q.changed.Broadcast()
	return e, nil
}

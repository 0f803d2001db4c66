package client

import (
	"io"
	"sync"

	"berth/proto"
)

// eventOverhead is the estimated memory of an event besides its output, in bytes: the struct and what it points to.
// Without it, a flood of empty events would count as nothing.
const eventOverhead = 512

// weight returns the size of an event in a queue, in bytes.
func weight(e proto.Event) int { return len(e.Data) + len(e.DataBase64) + eventOverhead }

// maxQueued bounds the bytes that wait for a slow terminal, such as a paused pager. Above it, reading stops and the
// daemon has to wait. The daemon drops clients that make it wait for long.
const maxQueued = 32 << 20

// A queue holds events between the connection and the code that prints them.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	list    []proto.Event
	bytes   int
	err     error // returned after the last event
	closed  bool
}

// newQueue returns an empty queue.
func newQueue() *queue {
	q := &queue{}
	q.changed.L = &q.mu
	return q
}

// put waits for room and appends an event. It returns false if the queue is closed.
func (q *queue) put(e proto.Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	// The limit is checked before the event is added. An event larger than the limit can thus still pass.
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

// end marks the end of the events and sets the error that follows them.
func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
	q.changed.Broadcast()
}

// close wakes all waiting calls.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// take waits for the next event. After the last event it returns the error of end.
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
	// Clear the slot: the array behind the slice would otherwise keep the output in memory.
	q.list[0] = proto.Event{}
	q.list = q.list[1:]
	q.bytes -= weight(e)
	q.changed.Broadcast()
	return e, nil
}

package live

import "berth/proto"

// Bounds of what waits for one command. Clients with more input use POST …/stdin, which blocks instead.
const (
	MaxWaiting = 1 << 20 // bytes of standard input
	maxJobs    = 1024    // messages
)

// A queueKey names a queue. Each exec has one for standard input, which may block for long, and one for other
// messages.
type queueKey struct {
	exec  string
	stdin bool
}

// A queue runs the messages for one exec in order, one at a time. It has a goroutine only while it is not empty. The
// mu of the socket guards its fields and the map of queues.
type queue struct {
	jobs    []job
	bytes   int
	refused bool // input did not fit; later input would leave a hole
}

type job struct {
	m  Message
	do func() error
}

// enqueue adds a job to a queue.
func (l *connection) enqueue(key queueKey, m Message, do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, there := l.queues[key]
	if !there {
		ln = &queue{}
		l.queues[key] = ln
	}
	size := len(m.Data) + len(m.DataBase64)
	if err := ln.checkRoom(key, size); err != nil {
		return err
	}
	ln.jobs = append(ln.jobs, job{m, do})
	ln.bytes += size
	// The running job stays first in the list, so a length of one means that no goroutine runs the queue.
	if len(ln.jobs) == 1 {
		l.wg.Go(func() { l.runQueue(key, ln) })
	}
	return nil
}

// checkRoom refuses a message that does not fit. A single message always fits.
func (ln *queue) checkRoom(key queueKey, size int) error {
	// The socket has bounded the size of a message, so one always fits an empty queue.
	full := len(ln.jobs) >= maxJobs || len(ln.jobs) > 0 && ln.bytes+size > MaxWaiting
	switch {
	case full && !key.stdin:
		return proto.Errorf(proto.TooMany, "", key.exec, "%d messages wait to be passed on to exec %s; send fewer",
			maxJobs, key.exec)
	case full || ln.refused:
		// Keep the queue, otherwise a later message would be accepted with a hole before it.
		ln.refused = true
		return proto.Errorf(proto.TooMany, "", key.exec, "exec %s does not read its standard input as fast as it is "+
			"sent; this connection's is refused from here on. POST …/stdin takes inputs of any size", key.exec)
	}
	return nil
}

// runQueue runs the jobs of a queue until it is empty.
func (l *connection) runQueue(key queueKey, ln *queue) {
	for {
		l.mu.Lock()
		j := ln.jobs[0]
		l.mu.Unlock()
		// Without the lock, since it may block until the command reads.
		if err := j.do(); err != nil {
			l.sendError(j.m, err)
		}
		if !l.nextJob(key, ln, j) {
			return
		}
	}
}

// nextJob removes the job that is done and reports whether there is another one.
func (l *connection) nextJob(key queueKey, ln *queue, done job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.jobs = ln.jobs[1:]
	ln.bytes -= len(done.m.Data) + len(done.m.DataBase64)
	if len(ln.jobs) > 0 && l.ctx.Err() == nil {
		return true
	}
	if !ln.refused {
		delete(l.queues, key)
	}
	return false
}

package native

import (
	"berth/proto"
)

// maxWaiting bounds the standard input that waits for one command to read it, in bytes, and maxJobs the
// messages. A client with more to give uses POST …/stdin, where it is held up instead.
const (
	maxWaiting = 1 << 20
	maxJobs    = 1024
)

// A laneKey names a lane: each exec has one for standard input, which may block for long, and
// one for the rest.
type queueKey struct {
	exec  string
	stdin bool
}

// A lane does jobs for one exec in the order of their messages, one at a time. It has a goroutine only while
// there are any.
// Its fields are guarded by the socket's mu, as the map of lanes is.
type queue struct {
	jobs    []job
	bytes   int
	refused bool // something did not fit; what follows would leave a hole
}

type job struct {
	m  message
	do func() error
}

// enqueue adds a job to a lane.
func (l *liveSocket) enqueue(key queueKey, m message, do func() error) error {
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
	// The job that is done stays first in the list until it is over, so a length of one means that
	// nobody drives the lane.
	if len(ln.jobs) == 1 {
		l.wg.Go(func() { l.runQueue(key, ln) })
	}
	return nil
}

// checkRoom refuses what does not fit. One message alone always does.
func (ln *queue) checkRoom(key queueKey, size int) error {
	// Without jobs a message of any size fits: the socket has bounded it already.
	full := len(ln.jobs) >= maxJobs || len(ln.jobs) > 0 && ln.bytes+size > maxWaiting
	switch {
	case full && !key.stdin:
		return proto.Errorf(proto.TooMany, "", key.exec, "%d messages wait to be passed on to exec %s; send fewer",
			maxJobs, key.exec)
	case full || ln.refused:
		// The lane is kept from here on, or a later message would pass, with a hole before it.
		ln.refused = true
		return proto.Errorf(proto.TooMany, "", key.exec, "exec %s does not read its standard input as fast as it is "+
			"sent; this connection's is refused from here on. POST …/stdin takes inputs of any size", key.exec)
	}
	return nil
}

// runQueue does a lane's jobs until there are none.
func (l *liveSocket) runQueue(key queueKey, ln *queue) {
	for {
		l.mu.Lock()
		j := ln.jobs[0]
		l.mu.Unlock()
		// Without the lock: it may block for as long as the command does not read.
		if err := j.do(); err != nil {
			l.sendError(j.m, err)
		}
		if !l.nextJob(key, ln, j) {
			return
		}
	}
}

// nextJob takes a job that is done off its lane and reports whether there is another one to do.
func (l *liveSocket) nextJob(key queueKey, ln *queue, done job) bool {
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

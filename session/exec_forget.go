package session

import (
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// removeExec removes an exec from the list that did not start, or that is to be forgotten.
func (s *Session) removeExec(e *Exec) {
	is := func(x *Exec) bool { return x == e }
	s.mu.Lock()
	s.execs, s.running = slices.DeleteFunc(s.execs, is), slices.DeleteFunc(s.running, is)
	s.mu.Unlock()
	if err := e.out.Discard(); err != nil { // the next start of the daemon removes the file
		s.core.cfg.Log.Warn("removing the kept output of an exec", "exec", e.id, "error", err)
	}
	forget := func(tx *ledger.Tx) error { return tx.Delete(bucketExecs, execKey(s.id, e.id)) }
	if e.retry.Key != "" { // else a daemon after a crash would answer the key with this exec
		_ = s.core.cfg.Ledger.UpdateAsync(forget) // fails only if the ledger does, which others report
		return
	}
	s.core.cfg.Ledger.UpdateLater(forget)
}

// runningExecs counts the execs that have not ended. With seen it leaves out those that are being started. Called
// with mu held.
func (s *Session) runningExecs(seen bool) int {
	n := len(s.running)
	for _, e := range s.running {
		if seen && e.number == 0 {
			n--
		}
	}
	return n
}

// holdingExecs counts the running execs that count as use of the session. Called with mu held.
func (s *Session) holdingExecs() int {
	n := s.runningExecs(true)
	for _, e := range s.running {
		if e.cmd.Resident && e.number > 0 {
			n--
		}
	}
	return n
}

// removeRunning removes an ended exec from the running ones.
func (s *Session) removeRunning(e *Exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = slices.DeleteFunc(s.running, func(x *Exec) bool { return x == e })
}

// endExecs requests the end of every exec that has a process, including execs that have no number yet. It includes
// durable ones only with all. An exec without a process yet finds its guest gone.
func (s *Session) endExecs(reason proto.EndReason, why string, all bool) {
	s.mu.Lock()
	list := slices.Clone(s.execs)
	s.mu.Unlock()
	for _, e := range list {
		if e.process() != nil && (all || !e.cmd.Outlives()) {
			e.Cancel(reason, why)
		}
	}
}

// dropExecs waits until all started execs have ended, and forgets them and their output.
func (s *Session) dropExecs() error {
	list := s.Execs()
	for _, e := range list {
		<-e.ended
		if err := e.out.Discard(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.execs = slices.DeleteFunc(s.execs, func(e *Exec) bool { return slices.Contains(list, e) })
	return nil
}

// trimEnded does the work of trim in the common case, in which at most one exec is too many. Looking at a hundred
// execs at each end would take a good part of a small command's time.
func (s *Session) trimEnded(ending *Exec) {
	s.mu.Lock()
	ending.counted = true
	s.keptBytes += ending.out.Kept()
	heavy := s.keptBytes > keptOutput
	var old []*Exec
	if n := len(s.execs) - keptExecs; n > 0 {
		old = slices.Clone(s.execs[:n])
	}
	s.mu.Unlock()
	if heavy {
		s.trim(keptOutput, ending)
		return
	}
	for i, e := range old {
		if e.hasEnded() {
			s.forgetOld(e, keptExecs+len(old)-1-i)
		}
	}
}

// forgetOld forgets an ended exec after which that many others started, if they are enough.
func (s *Session) forgetOld(e *Exec, after int) {
	if after < keptExecs || after < keptRetries && (e.mayBeRetried() || e.awaitsClient()) {
		return
	}
	s.removeExec(e)
}

// mayBeRetried reports whether a request with the key of an ended exec may still come.
func (e *Exec) mayBeRetried() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := retryTime
	if e.clientInformed && e.cmd.ReconnectSeconds > 0 && strings.HasPrefix(e.retry.Key, proto.OncePrefix) {
		kept = max(informGrace, seconds(e.cmd.ReconnectSeconds))
	}
	return e.retry.Key != "" && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(kept))
}

// informGrace is how long the output of an ended exec waits for its client when memory is short.
const informGrace = time.Minute

// awaitsClient reports whether an exec ended less than informGrace ago and no client has its result: a client that
// started many at once still has to fetch it.
func (e *Exec) awaitsClient() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.clientInformed && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(informGrace))
}

// trim forgets the oldest ended execs. It also moves output out of memory where ended execs together hold more than
// allowed bytes. ending is an exec that is about to end.
func (s *Session) trim(allowed int64, ending *Exec) {
	var kept int64
	list := s.Execs()
	slices.Reverse(list)
	for i, e := range list {
		if e != ending && !e.hasEnded() {
			continue
		}
		if kept += e.out.Kept(); kept > allowed {
			e.moveOut()
		}
		s.forgetOld(e, i)
	}
	s.recountKept()
}

// recountKept counts keptBytes anew. Before, it may be too high, since memory that is freed is not subtracted.
func (s *Session) recountKept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keptBytes = 0
	for _, e := range s.execs {
		if e.counted {
			s.keptBytes += e.out.Kept()
		}
	}
}

// moveOut moves an ended exec's output from memory to disk, if the disk has room and no follower reads it.
func (e *Exec) moveOut() {
	moved := e.out.MoveToDisk(func(err error) {
		e.s.core.cfg.Log.Warn("output does not fit on disk and is dropped", "exec", e.id, "error", err)
		e.dropOutput()
	})
	if moved {
		e.mu.Lock()
		e.result = nil
		e.mu.Unlock()
	}
}

// dropOutput frees the memory of an ended exec's output, unless a client still has to get it. The result then says
// that output was left out.
func (e *Exec) dropOutput() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.clientInformed && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(informGrace)) {
		return
	}
	e.out.Drop()
	res := e.resultOf(e.out.Output, &e.info, e.made)
	e.result = &res
}

// freeMemory moves output to disk when memory gets short. It moves the output of the exec that is about to end at
// once. One goroutine moves the output of earlier execs, so no command waits for the output of others.
func (ss *Sessions) freeMemory(ending *Exec) {
	if ss.memory.Used() < ss.cfg.OutputMemory/4 {
		return
	}
	ending.moveOut()
	if ss.freeingMemory.Swap(true) {
		return
	}
	err := ss.goTracked(nil, func() {
		defer ss.freeingMemory.Store(false)
		ss.makeRoom()
	})
	if err != nil { // the daemon is closing
		ss.freeingMemory.Store(false)
	}
}

// makeRoom moves output of ended execs to disk until half of freeMemory's threshold is free.
func (ss *Sessions) makeRoom() {
	for _, s := range ss.all() {
		for _, e := range s.Execs() {
			if ss.ctx.Err() != nil || ss.memory.Used() < ss.cfg.OutputMemory/8 {
				return
			}
			if e.hasEnded() {
				e.moveOut()
			}
		}
		s.recountKept()
	}
}

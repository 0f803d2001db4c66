package session

import (
	"encoding/json"
	"slices"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// storeEnds writes down the ends that could not be when they came.
func (s *Session) storeEnds() {
	for _, e := range s.Execs() {
		e.mu.Lock()
		info, made, again := e.info, e.made, e.unstored
		e.mu.Unlock()
		if again && info.End != nil {
			e.storeEnd(info, made)
			e.forgetInGuest()
		}
	}
}

// putExec writes an exec's record. Once the session is on its way out there is nobody to remember it for,
// and it would stay for ever.
func (s *Session) putExec(rec execRecord) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		r := s.record()
		if s.gone() || r.Delete || r.State == proto.StateExpired {
			return proto.Errorf(proto.NotFound, "", s.id, "container %s does not exist any more", s.id)
		}
		return tx.Put(bucketExecs, execKey(s.id, rec.Exec.ID), rec)
	}
}

// storedCmd is what of a command a later daemon needs to see it to its end. What may hold secrets stays out.
func storedCmd(cmd proto.Cmd) *proto.Cmd {
	if !durable(cmd) {
		return nil
	}
	return &proto.Cmd{
		OpenStdin: cmd.OpenStdin, TTY: cmd.TTY, Background: cmd.Background, Detach: cmd.Detach,
		IdempotencyKey: cmd.IdempotencyKey, TimeoutSeconds: cmd.TimeoutSeconds, MaxOutputBytes: cmd.MaxOutputBytes,
		OnOutputLimit: cmd.OnOutputLimit,
	}
}

// sealEnvironment is what a command brings itself, sealed, where it may end under a later daemon, which has to hide
// it then.
func (e *Exec) sealEnvironment() string {
	if !durable(e.cmd) || len(e.cmd.Env)+len(e.cmd.Secrets) == 0 {
		return ""
	}
	text, err := json.Marshal(sealedFields{Env: e.cmd.Env, Secrets: e.cmd.Secrets})
	var sealed string
	if err == nil {
		sealed, err = e.s.core.cfg.Vault.Seal(e.id, text)
	}
	if err != nil {
		e.s.core.cfg.Log.Warn("sealing the environment of a command", "exec", e.id, "error", err)
	}
	return sealed
}

// removeExec takes an exec that did not start, or that is to be forgotten, off the list.
func (s *Session) removeExec(e *Exec) {
	is := func(x *Exec) bool { return x == e }
	s.mu.Lock()
	s.execs, s.running = slices.DeleteFunc(s.execs, is), slices.DeleteFunc(s.running, is)
	s.mu.Unlock()
	if err := e.discard(); err != nil { // a start finds the file, which is then nobody's
		s.core.cfg.Log.Warn("removing the kept output of an exec", "exec", e.id, "error", err)
	}
	forget := func(tx *ledger.Tx) error { return tx.Delete(bucketExecs, execKey(s.id, e.id)) }
	if e.retry.Key != "" { // or a daemon that comes after a crash would answer its key with it
		_ = s.core.cfg.Ledger.UpdateAsync(forget) // fails where the ledger does, which others say
		return
	}
	s.core.cfg.Ledger.UpdateLater(forget)
}

// runningExecs counts those that have not ended; those that are just being started too, unless
// seen is set. Called with mu held.
func (s *Session) runningExecs(seen bool) int {
	n := len(s.running)
	for _, e := range s.running {
		if seen && e.number == 0 {
			n--
		}
	}
	return n
}

// holdingExecs are the running ones that count as use of the session. Called with mu held.
func (s *Session) holdingExecs() int {
	n := s.runningExecs(true)
	for _, e := range s.running {
		if e.cmd.Resident && e.number > 0 {
			n--
		}
	}
	return n
}

// removeRunning takes an exec that has ended off those that run.
func (s *Session) removeRunning(e *Exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = slices.DeleteFunc(s.running, func(x *Exec) bool { return x == e })
}

// endExecs asks every exec that has a process to end, those too that nobody was told of yet; durable ones only if
// all is set. One that has none so far finds the guest gone.
func (s *Session) endExecs(reason proto.EndReason, why string, all bool) {
	s.mu.Lock()
	list := slices.Clone(s.execs)
	s.mu.Unlock()
	for _, e := range list {
		if e.process() != nil && (all || !durable(e.cmd)) {
			e.Cancel(reason, why)
		}
	}
}

// dropExecs waits for the execs that started to be over, and forgets them and their kept output.
func (s *Session) dropExecs() error {
	list := s.Execs()
	for _, e := range list {
		<-e.ended
		if err := e.discard(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.execs = slices.DeleteFunc(s.execs, func(e *Exec) bool { return slices.Contains(list, e) })
	return nil
}

// trimEnded is trim for keptOutput where there is something to do: usually one exec at most is too many. To look at a
// hundred of them at each end is a good part of what a small command takes.
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

// forgetOld forgets an ended exec after which so many were started, if those are enough.
func (s *Session) forgetOld(e *Exec, after int) {
	if after < keptExecs || after < keptRetries && (e.mayBeRetried() || e.awaitsClient()) {
		return
	}
	s.removeExec(e)
}

// mayBeRetried reports whether somebody may ask for an ended exec again with its key.
func (e *Exec) mayBeRetried() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.retry.Key != "" && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(retryTime))
}

// informGrace is how long an ended exec's output waits for somebody to ask, when there is too much of it.
const informGrace = time.Minute

// awaitsClient reports whether nobody has had the result of an exec that ended a moment ago: whoever started many at
// once is still to come for it.
func (e *Exec) awaitsClient() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.clientInformed && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(informGrace))
}

// trim forgets the oldest ended execs, and the output of those that together hold too much, once it was
// told or nobody came for it. ending is about to have ended.
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

// recountKept brings kept up to date. What was given back since the last time is not taken off it before, so it may
// be too much and is never too little.
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

// dropOutput gives the memory of an ended exec's output back, unless somebody is still to be told of it.
// The result then says that it was left out.
func (e *Exec) dropOutput() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.clientInformed && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(informGrace)) {
		return
	}
	e.out.Drop()
	res := e.resultOf(e.out, &e.info, e.made)
	e.result = &res
}

package session

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"berth/guest/output"
	"berth/proto"
	"berth/state/ledger"
)

// enlist gives a command its exec and a place in the session's list.
func (s *Session) enlist(cmd proto.Cmd, r retry) (*Exec, error) {
	e := &Exec{
		veil: s.veilOf(cmd),
		s:    s, id: proto.NewID(proto.ExecPrefix), cmd: cmd, retry: r, out: output.New(cmd.MaxOutputBytes, s.core.memory),
		ask: make(chan ending, 1), ended: make(chan struct{}), left: make(chan struct{}),
	}
	if cmd.OnOutputLimit == proto.OutputWait {
		e.out.Hold()
	}
	e.info = proto.Exec{
		ID: e.id, ContainerID: s.id, JobID: cmd.JobID, Command: cmd.Command, Argv: cmd.Argv, Shell: cmd.Shell,
		User:       cmd.User,
		Background: cmd.Background, State: proto.ExecRunning, StartedAt: proto.At(s.core.cfg.Now()),
	}
	if cmd.Shown != "" {
		e.info.Command, e.info.Argv = cmd.Shown, nil
	}
	e.veil.describe(&e.info)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.info.Generation = s.rec.Generation
	if n := s.runningExecs(false); n >= s.core.cfg.MaxExecs {
		return nil, proto.Errorf(proto.TooMany, "", s.id, "container %s runs %d commands, which is its limit; wait "+
			"for one to end", s.id, n)
	}
	s.execs, s.going = append(s.execs, e), append(s.going, e)
	return e, nil
}

// announce numbers an exec that has started and wakes those who wait for new ones.
func (s *Session) announce(e *Exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	e.number = s.begun
	close(s.more)
	s.more = make(chan struct{})
}

// delist takes an exec that did not start, or that is to be forgotten, off the list.
func (s *Session) delist(e *Exec) {
	is := func(x *Exec) bool { return x == e }
	s.mu.Lock()
	s.execs, s.going = slices.DeleteFunc(s.execs, is), slices.DeleteFunc(s.going, is)
	s.mu.Unlock()
	if err := e.discard(); err != nil { // a start finds the file, which is then nobody's
		s.core.cfg.Log.Warn("removing the kept output of an exec", "exec", e.id, "error", err)
	}
	forget := func(tx *ledger.Tx) error { return tx.Delete(bucketExecs, execKey(s.id, e.id)) }
	if e.retry.Key != "" { // or a daemon that comes after a crash would answer its key with it
		_ = s.core.cfg.Ledger.Jot(forget) // fails where the ledger does, which others say
		return
	}
	s.core.cfg.Ledger.Later(forget)
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

// runningExecs counts those that have not ended; those that are just being started too, unless
// seen is set. Called with mu held.
func (s *Session) runningExecs(seen bool) int {
	n := len(s.going)
	for _, e := range s.going {
		if seen && e.number == 0 {
			n--
		}
	}
	return n
}

// holdingExecs are the running ones that count as use of the session. Called with mu held.
func (s *Session) holdingExecs() int {
	n := s.runningExecs(true)
	for _, e := range s.going {
		if e.cmd.Resident && e.number > 0 {
			n--
		}
	}
	return n
}

// settled takes an exec that has ended off those that run.
func (s *Session) settled(e *Exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.going = slices.DeleteFunc(s.going, func(x *Exec) bool { return x == e })
}

// Execs lists the running and the remembered execs, in the order they began. One that is just being
// started is not among them; it fails by itself if its session goes.
func (s *Session) Execs() []*Exec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.execs), func(e *Exec) bool { return e.number == 0 })
}

// FindExec finds one of them by its ID.
func (s *Session) FindExec(id string) (*Exec, error) {
	for _, e := range s.Execs() {
		if e.id == id {
			return e, nil
		}
	}
	return nil, proto.Errorf(proto.NotFound, "", id, "exec %.80q does not exist in container %s; a container "+
		"remembers its last %d", id, s.id, keptExecs)
}

// NextExecs waits for execs that began after the first seen, and returns them with the new count.
// Begin with seen 0 for those remembered too, or with Begun.
func (s *Session) NextExecs(ctx context.Context, seen int) ([]*Exec, int, error) {
	for {
		s.mu.Lock()
		begun, more := s.begun, s.more
		var fresh []*Exec
		for _, e := range s.execs {
			if e.number > seen {
				fresh = append(fresh, e)
			}
		}
		s.mu.Unlock()
		if begun > seen {
			return fresh, begun, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, seen, ctx.Err()
		}
	}
}

// Begun is how many execs ever began.
func (s *Session) Begun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
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
	ending.weighed = true
	s.kept += ending.out.Kept()
	heavy := s.kept > keptOutput
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
			s.dropOld(e, keptExecs+len(old)-1-i)
		}
	}
}

// hasEnded reports whether everybody may know that the exec has.
func (e *Exec) hasEnded() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// dropOld forgets an ended exec after which so many were started, if those are enough.
func (s *Session) dropOld(e *Exec, after int) {
	if after < keptExecs || after < keptRetries && (e.retriable() || e.untold()) {
		return
	}
	s.delist(e)
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
		s.dropOld(e, i)
	}
	s.weigh()
}

// weigh brings kept up to date. What was given back since the last time is not taken off it before, so it may be too
// much and is never too little.
func (s *Session) weigh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = 0
	for _, e := range s.execs {
		if e.weighed {
			s.kept += e.out.Kept()
		}
	}
}

// recordStart is how it is written down that the command runs, and wait returns once that is done: nobody sees the
// exec before, and what was seen to run is known after a crash. A durable one is on disk then, and gets there while
// the process starts. Others end with the daemon, and go to the ledger's journal without a sync, once their process
// runs.
func (e *Exec) recordStart() (wait func() error) {
	put := e.s.putExec(execRecord{Exec: e.Info(), Key: e.key, Retry: e.retry, Run: keepable(e.cmd), Host: e.s.core.host,
		Guest: e.s.guestBoot(), Sealed: e.sealOwn()})
	if durable(e.cmd) {
		return e.s.core.cfg.Ledger.Begin(put)
	}
	return func() error { return e.s.core.cfg.Ledger.Jot(put) }
}

// conclude books the end: outputs, manifest, ledger, audit; then it lets go of the session, and everybody may know:
// whoever has been told finds the session as it is without the command.
func (e *Exec) conclude(end proto.End, release func()) {
	now := e.s.core.cfg.Now()
	e.mu.Lock()
	info := e.info
	now = later(now.Add(-e.ago), info.StartedAt.Time)
	e.mu.Unlock()
	info.State, info.EndedAt, info.End = proto.ExecEnded, proto.AtOrNil(now), &end
	info.StdoutBytes, info.StderrBytes = e.out.Totals()

	made := e.produced(info)
	e.conceal(info.End, &made)
	res := e.resultOf(e.out, &info, made)
	e.charge(info) // before the end is written, so that no end is known that was not paid for
	e.store(info, made)
	e.tellEnd(info, made)

	e.mu.Lock()
	made.Paths = nil // the job's books and the audit log have them
	e.info, e.made, e.result = info, made, &res
	e.mu.Unlock()
	e.s.trimEnded(e)
	e.s.core.relieve(e) // before the next command may begin, which needs the memory
	// before it lets go: a pause that came between would take whatever else uses the session for the command
	e.s.settled(e)
	release()
	close(e.ended)
}

// later is the later one of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// produced has the job's books brought up to date, if the guest is still there to ask.
func (e *Exec) produced(info proto.Exec) Produced {
	switch info.End.Reason {
	case proto.EndLost, proto.EndHostRestart, proto.EndStopped, proto.EndExpired:
		return Produced{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	e.mu.Lock()
	g, sight := e.guest, e.sight
	e.mu.Unlock()
	// outputs count against its quota
	ctx = proto.WithCaller(forBooks(ctx, g), proto.Caller{Owner: e.s.owner, KeyID: e.key})
	return e.s.core.cfg.Jobs.End(ctx, e.s, info, e.tail(proto.Stderr, stderrTail), sight)
}

// store writes down the end, and the output of those that somebody will ask for later. A durable one is on disk when
// it returns; that of a foreground command is safe from the daemon's death. What finds no room a sweep tries again to
// write; of a durable one, its guest keeps it until then.
func (e *Exec) store(info proto.Exec, made Produced) {
	rec := execRecord{Exec: info, Key: e.key, Retry: e.retry, Files: made.FileIDs, Error: blockError(info.End.Reason),
		Notes: made.Notes}
	write, kept := e.s.core.cfg.Ledger.Jot, error(nil)
	if durable(e.cmd) {
		write = e.s.core.cfg.Ledger.Update
		if kept = e.spool(); kept != nil {
			e.s.core.cfg.Log.Error("keeping the output of an exec", "exec", e.id, "error", kept)
		}
	}
	err := write(e.s.putExec(rec))
	if proto.CodeOf(err) == proto.NotFound { // its session goes, and nobody will ask
		err = nil
	}
	if err != nil {
		e.s.core.cfg.Log.Error("recording the end of an exec; a sweep will try again", "exec", e.id, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unstored = err != nil || errors.Is(kept, syscall.ENOSPC)
}

// storeEnds writes down the ends that could not be when they came.
func (s *Session) storeEnds() {
	for _, e := range s.Execs() {
		e.mu.Lock()
		info, made, again := e.info, e.made, e.unstored
		e.mu.Unlock()
		if again && info.End != nil {
			e.store(info, made)
			e.forget()
		}
	}
}

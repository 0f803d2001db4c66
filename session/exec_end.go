package session

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"berth/guest/client"
	"berth/guest/output"
	"berth/guest/wire"
	"berth/proto"
	"berth/session/limits"
	"berth/session/shells"
)

// This file has the end of a command, in order: runToEnd waits for its process, or ends it; recordEnd records the end,
// publishes it and releases the session.

// setDeadline sets when the command must end, and the reason: its own limit, or the session's cap. The limit counts
// from the start of the process.
func (e *Exec) setDeadline() {
	left := e.s.record().cap().Sub(e.s.core.clock.Now())
	limit, proc := seconds(e.cmd.TimeoutSeconds)-e.ran, e.process()
	if e.cmd.TimeoutSeconds == 0 || left < limit || proc != nil && proc.Ended() {
		e.due, e.overdue = time.Now().Add(left), endRequest{proto.EndExpired, "the container's time was over"}
		return
	}
	e.due, e.overdue = time.Now().Add(limit), endRequest{proto.EndTimeout, "it ran longer than timeout_seconds"}
}

// killGrace is how long a killed process may take to exit before its guest counts as lost.
const killGrace = 10 * time.Second

// runToEnd waits for the end of the command, records it and releases the session.
func (e *Exec) runToEnd(release func()) {
	end, ended := e.awaitEnd()
	if !ended {
		e.span.EndExec(nil)
		close(e.leftRunning)
		release()
		return
	}
	e.clients.End()
	end = e.explainEnd(end)
	e.out.Finish()
	e.recordEnd(end, release)
	e.forgetInGuest()
}

// awaitEnd waits for the process to end, or ends it. It returns false if the command goes on without this daemon.
func (e *Exec) awaitEnd() (end proto.End, ok bool) {
	proc := e.process()
	if proc == nil {
		return e.endWithoutProcess, true
	}
	var leaving <-chan struct{} // closed when this daemon ends and the command goes on without it
	if e.cmd.Outlives() {
		leaving = e.s.core.ctx.Done()
	}
	timer := time.NewTimer(time.Until(e.due))
	defer timer.Stop()
	select {
	case <-proc.Done():
		return e.preferRequestedEnd(e.exited(proc)), true
	case <-timer.C:
		return e.kill(proc, e.overdue), true
	case want := <-e.endRequests:
		return e.kill(proc, want), true
	case <-leaving:
		return end, false
	}
}

// exited returns the end of a process that has exited.
func (e *Exec) exited(proc *client.Process) proto.End {
	x, err := proc.Wait(context.Background())
	e.mu.Lock()
	e.ago, e.shellEnded = x.Ago, x.ShellEnded
	e.dirState = DirectoryState{Fingerprint: x.Seen, NoOutputs: x.NoOutput}
	e.mu.Unlock()
	return limits.EndOf(x, err)
}

// kill kills the whole process tree and waits for its exit. A guest that takes longer than killGrace is lost.
func (e *Exec) kill(proc *client.Process, want endRequest) proto.End {
	ctx, cancel := context.WithTimeout(context.Background(), killGrace)
	defer cancel()
	e.out.Release()     // else the guest could not send the rest of the output
	_ = e.s.resume(ctx) // frozen processes do not exit
	_ = proc.Kill(ctx)  // the exit below is what counts
	select {
	case <-proc.Done():
		return limits.OnRequest(e.exited(proc), want.reason, want.why)
	case <-ctx.Done():
		proc.Drop() // no output may follow the end
		return limits.OnRequest(limits.EndOf(wire.Exit{}, ctx.Err()), want.reason, want.why)
	}
}

// preferRequestedEnd returns the end of a process that exited before it was killed. If its sandbox was stopped on
// request, or it had written too much by then, that is the reason.
func (e *Exec) preferRequestedEnd(end proto.End) proto.End {
	select {
	case want := <-e.endRequests:
		if end.Reason == proto.EndLost || end.Signal == "SIGKILL" ||
			want.reason == proto.EndOutputLimit {
			return limits.OnRequest(end, want.reason, want.why)
		}
	default:
	}
	return end
}

// explainEnd adds the limit that caused an end, if one did.
func (e *Exec) explainEnd(end proto.End) proto.End {
	proc := e.process()
	if proc == nil {
		return end
	}
	rec := e.s.record()
	o := limits.Observation{Before: e.before, After: limits.Unknown, Limits: rec.Limits, Class: rec.Class, Tail: e.tail}
	if end.Reason == proto.EndLost || end.ReturnCode != 0 {
		o.After = e.s.measure() // at once: the sandbox may be removed soon
	}
	if end.Reason != proto.EndLost {
		select {
		case <-proc.Done():
			o.Exit, _ = proc.Wait(context.Background())
		default: // the process was given up
		}
	}
	return o.Explain(end)
}

// recordTimeout bounds the work after a command's end: outputs and the manifest.
const recordTimeout = 2 * time.Minute

// recordEnd is the only function that makes an end known. In this order it
//
//   - records: the job's manifest and outputs, the CPU time of the API key, the ledger, the audit log;
//   - publishes: the result that Wait returns;
//   - releases: memory, the place among the running execs, the session.
//
// Then it closes e.ended. A caller that learns of the end finds the session without the command.
func (e *Exec) recordEnd(end proto.End, release func()) {
	e.mu.Lock()
	info := e.info
	at := e.s.core.cfg.Now().Add(-e.ago)
	e.mu.Unlock()
	if at.Before(info.StartedAt.Time) {
		at = info.StartedAt.Time
	}
	info.State, info.EndedAt, info.End = proto.ExecEnded, proto.AtOrNil(at), &end
	info.StdoutBytes, info.StderrBytes = e.out.Totals()

	made := e.recordJob(info)
	made.Notes = append(append(e.shellNotes(), made.Notes...), e.s.Refused(info.StartedAt.Time)...)
	end.Message, made.Notes = e.redactor.Hide(end.Message), e.redactor.HideAll(made.Notes)
	res := e.resultOf(e.out.Output, &info, made)
	// The key pays before the end is written, so every known end was paid for. The guest is not trusted: it cannot
	// charge more than the container's CPUs had in that time.
	most := info.Duration(time.Time{}).Seconds()*e.s.record().Limits.CPUs + grain
	e.s.chargeCPU(e, min(end.CPUSeconds, most))
	e.storeEnd(info, made)
	e.auditExec(actionExecEnd, info, made)
	e.span.EndExec(&end)

	e.mu.Lock()
	made.Paths = nil // the manifest and the audit log have them
	e.info, e.made, e.result = info, made, &res
	e.mu.Unlock()

	e.s.trimEnded(e)
	e.s.core.freeMemory(e) // the next command may need the memory
	// Before the release: a pause between the two would count another user of the session as this command.
	e.s.removeRunning(e)
	release()
	close(e.ended)
}

// shellNotes says if a persistent shell was lost, before the command or with it.
func (e *Exec) shellNotes() (notes []string) {
	name := e.cmd.Shell
	if proc := e.process(); name != "" && proc != nil && proc.Fresh() && !e.s.closedShells.Take(name) {
		var earlier []shells.Call
		for _, other := range e.s.Execs() {
			if other == e {
				break
			}
			other.mu.Lock()
			earlier = append(earlier, shells.Call{Info: other.info, Notes: other.made.Notes})
			other.mu.Unlock()
		}
		notes = shells.Anew(name, earlier)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shellEnded {
		notes = append(notes, shells.Ended(name))
	}
	return notes
}

// storeEnd writes the end, and the output of a durable exec. The end of a durable exec is on disk when it returns;
// other ends survive the death of the daemon. If there is no room, a sweep tries again, and the guest keeps a durable
// exec until then.
func (e *Exec) storeEnd(info proto.Exec, made Produced) {
	rec := execRecord{Exec: info, Key: e.key, Retry: e.retry, Files: made.FileIDs, Error: blockError(info.End.Reason),
		Notes: made.Notes}
	write, kept := e.s.core.cfg.Ledger.UpdateAsync, error(nil)
	if e.cmd.Outlives() {
		write = e.s.core.cfg.Ledger.Update
		if kept = e.out.Spool(); kept != nil {
			e.s.core.cfg.Log.Error("keeping the output of an exec", "exec", e.id, "error", kept)
		}
	}
	err := write(e.s.putExec(rec))
	if proto.CodeOf(err) == proto.NotFound { // the session goes, so no client will ask
		err = nil
	}
	if err != nil {
		e.s.core.cfg.Log.Error("recording the end of an exec; a sweep will try again", "exec", e.id, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unstored = err != nil || errors.Is(kept, syscall.ENOSPC)
}

// storeEnds writes down the ends that could not be written when they came.
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

// recordJob brings the job's manifest up to date and publishes outputs, if the guest can still be asked.
func (e *Exec) recordJob(info proto.Exec) Produced {
	switch info.End.Reason {
	case proto.EndLost, proto.EndHostRestart, proto.EndStopped, proto.EndExpired:
		return Produced{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	e.mu.Lock()
	g, dir := e.guest, e.dirState
	e.mu.Unlock()
	// outputs count against the quota of the exec's key
	ctx = proto.WithCaller(ctx, proto.Caller{Owner: e.s.owner, KeyID: e.key})
	return e.s.core.cfg.Jobs.End(ctx, Files{s: e.s, bound: g}, info, e.tail(proto.Stderr, stderrTail), dir)
}

// stderrTail is how much of standard error a manifest quotes, in bytes.
const stderrTail = 2 << 10

// grain is what the kernel's count of CPU time may be ahead of the clock, in seconds.
const grain = 0.1

// resultOf builds the result of an exec, and notes in info whether output was left out.
func (e *Exec) resultOf(out *output.Output, info *proto.Exec, made Produced) proto.ExecResult {
	stdout, cut1 := out.Result(proto.Stdout)
	stderr, cut2 := out.Result(proto.Stderr)
	info.Truncated = cut1 || cut2
	res := proto.ExecResult{Exec: *info, Notes: made.Notes}
	if code := blockError(info.End.Reason); code != "" {
		res.Result.Error = &proto.BashError{Type: proto.TypeBashError, ErrorCode: code}
		res.Partial = &proto.Output{Stdout: stdout, Stderr: stderr}
		return res
	}
	content := make([]proto.BashOutput, len(made.FileIDs))
	for i, id := range made.FileIDs {
		content[i] = proto.BashOutput{Type: proto.TypeBashOutput, FileID: id}
	}
	res.Result.Result = &proto.BashResult{
		Type: proto.TypeBashResult, Stdout: stdout, Stderr: stderr, ReturnCode: info.End.ReturnCode, Content: content,
	}
	return res
}

// blockError returns the result block's name for an end that the command did not cause itself. The block has few
// codes; the exec's end has the exact reason.
func blockError(r proto.EndReason) proto.BlockError {
	switch r {
	case proto.EndTimeout:
		return proto.BlockTimeExceeded
	case proto.EndOutputLimit:
		return proto.BlockTooLarge
	case proto.EndLost, proto.EndHostRestart, proto.EndStopped, proto.EndExpired, proto.EndCanceled:
		return proto.BlockUnavailable
	}
	return ""
}

// tail returns the last n bytes of what a stream kept, without secrets.
func (e *Exec) tail(s proto.Stream, n int) string {
	head, tail, _ := e.out.Text(s)
	all := append(head, tail...)
	return e.redactor.Tail(validText(all), n)
}

// validText returns b as valid UTF-8.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
)

// lockTransition takes the transition lock, or gives up when ctx ends. It completes the handshake of a session that
// was taken over.
func (s *Session) lockTransition(ctx context.Context) (unlock func(), err error) {
	select {
	case s.transition <- struct{}{}:
		s.handshakeIfAwake()
		return func() { <-s.transition }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryLockTransition works like lockTransition without waiting; free is false if another goroutine has the lock. It
// does no handshake.
func (s *Session) tryLockTransition() (unlock func(), free bool) {
	select {
	case s.transition <- struct{}{}:
		return func() { <-s.transition }, true
	default:
		return nil, false
	}
}

// ensureStarted starts a stopped session. Of many callers at once, one starts it, on a context that outlives its
// request, and all wait.
func (s *Session) ensureStarted(ctx context.Context) error {
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	if err := s.usable(); err != nil || s.state() == proto.StateRunning {
		unlock()
		return err
	}
	started := make(chan error, 1)
	err = s.core.goTracked(nil, func() {
		err := s.traced(withCallerOf(s.core.ctx, ctx), "container.start", s.startGeneration)
		unlock() // before the callers go on: a sweep skips a session whose lock is taken
		started <- err
	})
	if err != nil {
		unlock()
		return err
	}
	select {
	case err := <-started:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startGeneration starts the sandbox as the next generation. If that fails, it removes the sandbox. Called with
// transition held.
func (s *Session) startGeneration(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.core.cfg.StartTimeout)
	defer cancel()
	if s.unclean { // else processes that the last stop failed to end would run in the next generation
		if err := s.stopSandbox(ctx); err != nil {
			return err
		}
	}
	err := s.startSandbox(ctx)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.core.cfg.StartTimeout)
		defer cancel()
		if err := s.stopSandbox(ctx); err != nil {
			s.core.cfg.Log.Error("removing a sandbox that did not come up; a sweep will try again", "container", s.id,
				"error", err)
		}
	}
	return err
}

// startSandbox starts the next generation. The record that it exists is synced to disk meanwhile, and is on disk when
// this returns. The record that it runs only has to survive the daemon.
func (s *Session) startSandbox(ctx context.Context) error {
	fresh := s.state() == proto.StateCreating
	if !fresh { // the record of a new session says so already
		if err := s.changeAsync(func(r *record) {
			r.Generation++
			setDefault(&r.Layer, proto.NewID(proto.LayerPrefix))
		}); err != nil {
			return err
		}
	}
	onDisk, spec := s.core.onDisk(), s.record().spec()
	if err := s.revert(ctx); err != nil {
		return err
	}
	spec.New, spec.HasFiles = fresh, !fresh || s.record().From != nil || s.core.workspaceOf(s).Kept
	if err := s.core.cfg.Runtime.Start(ctx, s.id, spec); err != nil {
		return err
	}
	s.mu.Lock()
	s.guest = s.newGuest()
	s.mu.Unlock()
	hello, err := s.identifyGuest(ctx)
	if err != nil {
		return err
	}
	iso, err := s.inspect(ctx, hello)
	if err != nil {
		return err
	}
	if err := s.servePorts(ctx); err != nil {
		return err
	}
	if err := s.installCA(ctx); err != nil {
		return err
	}
	mounts := s.reprovision(ctx)
	s.setBoot(hello.Boot)
	s.cpu.Begin(s.record().Generation, s.core.cfg.Runtime.CPUSeconds(s.id))
	now := s.core.clock.Now() // the lease begins after the start, however long that took
	if err := onDisk(); err != nil {
		return err
	}
	err = s.changeAsync(func(r *record) {
		r.State, r.LastUsed, r.Isolation, r.Mounts, r.From = proto.StateRunning, now, iso, mounts, nil
	})
	if err == nil {
		s.auditGeneration(ctx)
	}
	return err
}

// inspect finds out how the new sandbox is isolated.
func (s *Session) inspect(ctx context.Context, hello wire.Hello) (proto.Isolation, error) {
	iso, err := s.core.cfg.Runtime.Inspect(ctx, s.id)
	if err != nil {
		return iso, err
	}
	iso.SetThroughProxy(s.record().connected())
	const longest = 128 // bytes; the guest is not trusted to be brief
	iso.Kernel = strings.ToValidUTF8(hello.Kernel[:min(len(hello.Kernel), longest)], "")
	return iso, nil
}

func (s *Session) setBoot(boot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boot = boot
}

func (s *Session) guestBoot() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boot
}

// Reset gives the session a fresh layer: all files outside the workspace are those of the image again. It ends the
// session's processes; the next use starts it.
func (s *Session) Reset(ctx context.Context) error {
	return s.replaceLayer(ctx, "the container was reset", func(*record) {}, func(ctx context.Context) {
		s.auditAction(ctx, actionReset, "")
	})
}

// replaceLayer ends the session's processes and gives it another layer. change makes the rest of the change in the
// record; once that is on disk, the next use has the new layer, whatever fails, and audit is called.
func (s *Session) replaceLayer(ctx context.Context, why string, change func(*record),
	audit func(context.Context)) error {
	ctx = context.WithoutCancel(ctx)
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := cmp.Or(s.usable(), s.revert(ctx)); err != nil { // a restore came before
		return err
	}
	if s.markStopping() {
		if _, err := s.finishStop(ctx, proto.EndStopped, why); err != nil {
			return err
		}
	}
	if err := s.change(func(r *record) {
		r.Discarded = append(slices.Clone(r.Discarded), r.Layer)
		r.Layer = proto.NewID(proto.LayerPrefix)
		change(r)
	}); err != nil {
		return err
	}
	audit(ctx)
	return cmp.Or(s.revert(ctx), s.removeDiscarded(ctx))
}

// removeDiscarded removes the layers that the session has no use for. Called with transition held.
func (s *Session) removeDiscarded(ctx context.Context) error {
	layers := s.record().Discarded
	if len(layers) == 0 {
		return nil
	}
	for _, id := range layers {
		if err := s.core.cfg.Runtime.RemoveLayer(ctx, id); err != nil {
			return fmt.Errorf("removing %s: %w", id, err)
		}
	}
	return s.changeAsync(func(r *record) { r.Discarded = nil })
}

// stopUnlessStopped stops the sandbox if it runs, and keeps the files.
func (s *Session) stopUnlessStopped(ctx context.Context, why string) error {
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !s.markStopping() {
		return nil
	}
	_, err = s.finishStop(ctx, proto.EndStopped, why)
	return err
}

// markStopping keeps new users out if the session runs: they wait for the stop and start it again.
func (s *Session) markStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != proto.StateRunning {
		return false
	}
	s.stopping = true
	return true
}

// finishStop records the stop and does it. If the record fails, the session goes on. Called with transition held and
// stopping set, which it resets.
func (s *Session) finishStop(ctx context.Context, reason proto.EndReason, why string) (bool, error) {
	err := s.changeAsync(func(r *record) { r.State = proto.StateStopped })
	s.mu.Lock()
	s.stopping = false
	if err == nil {
		s.lastStop = stopCause{s.guest, reason, why}
	}
	s.mu.Unlock()
	if err != nil {
		return false, err
	}
	s.resumeToEnd(ctx)
	s.endExecs(reason, why, true)
	s.auditAction(ctx, actionStop, why)
	return true, s.stopSandbox(ctx)
}

// A stopCause says why the generation of a guest was stopped.
type stopCause struct {
	guest  *client.Client
	reason proto.EndReason
	why    string
}

// stoppedOnRequest returns the error of a command that reached guest g after its container was stopped on request,
// and must not start it again.
func (s *Session) stoppedOnRequest(g *client.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastStop.guest != g || s.lastStop.reason == proto.EndLost {
		return nil
	}
	return proto.Errorf(proto.Unavailable, "", s.id, "%s while the command was starting; it did not run. Send it "+
		"again to start the container again", s.lastStop.why)
}

// stopSandbox removes the sandbox, and notes if that failed. Called with transition held.
func (s *Session) stopSandbox(ctx context.Context) error {
	s.closeGuest()
	s.chargeCPU(nil, 0)
	err := s.core.cfg.Runtime.Stop(ctx, s.id)
	if s.unclean = err != nil; err == nil {
		s.markSandboxGone()
	}
	return err
}

// markSandboxGone notes that the sandbox is gone: it is neither paused nor waits for a handshake. Called with
// transition held.
func (s *Session) markSandboxGone() {
	if s.needsHandshake.Load() {
		s.endUnattached()
		s.needsHandshake.Store(false)
	}
	s.set(&s.paused, false)
}

// closeGuest closes this generation's connections.
func (s *Session) closeGuest() {
	s.ports.Close()
	s.Guest().Close()
}

// detach saves the record and closes the connections to the guest.
func (s *Session) detach() error {
	err := s.saveRecord()
	s.closeGuest()
	return err
}

// confirmLost checks a guest that no longer answers. If it is gone, its generation is over: the session is stopped,
// and the next use starts it with its files.
func (s *Session) confirmLost(ctx context.Context, g *client.Client) bool {
	if s.guestAnswers(ctx, g) {
		return false
	}
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	return s.stopLost(ctx, g)
}

// sweepLost works like confirmLost, for the sweeper: it skips a session in transition. It reports whether this call
// stopped the session.
func (s *Session) sweepLost(ctx context.Context, g *client.Client) bool {
	if s.state() != proto.StateRunning || s.guestAnswers(ctx, g) {
		return false
	}
	unlock, free := s.tryLockTransition()
	if !free {
		return false
	}
	defer unlock()
	return s.state() == proto.StateRunning && s.Guest() == g && s.stopLost(ctx, g)
}

// guestAnswers reports whether guest g answers after all, or has a reason not to.
func (s *Session) guestAnswers(ctx context.Context, g *client.Client) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
	defer cancel()
	_, err := g.Hello(ctx)
	return err == nil || s.core.ctx.Err() != nil || s.stillPaused() // Close closed the connection
}

// stopLost stops a session whose guest is gone. Called with transition held.
func (s *Session) stopLost(ctx context.Context, g *client.Client) bool {
	if s.Guest() != g || !s.markStopping() {
		return true
	}
	s.core.cfg.Log.Warn("container lost; its next use starts it again", "container", s.id)
	if _, err := s.finishStop(context.WithoutCancel(ctx), proto.EndLost,
		"the container ended unexpectedly"); err != nil {
		if !s.is(&s.removed) { // it may have been deleted meanwhile
			s.core.cfg.Log.Error("stopping a container that was lost", "container", s.id, "error", err)
		}
		return false
	}
	return true
}

// helloTimeout is how long a guest may take to answer before it counts as lost.
const helloTimeout = 5 * time.Second

// A pauseReason says why a session is paused.
type pauseReason struct {
	onlyIdle bool   // not if it is in use
	keep     bool   // its lease does not run on
	note     string // for the audit log
}

// pause pauses the session and reports whether it did. One that is paused can still become one that is kept so. Called
// with transition held.
func (s *Session) pause(ctx context.Context, why pauseReason) (bool, error) {
	did, err := s.markPaused(why.onlyIdle)
	if err != nil {
		return false, err
	}
	if did {
		s.ports.Close() // the peers cannot be told to wait
		s.peers.Close()
		if err := s.core.cfg.Runtime.Pause(ctx, s.id); err != nil {
			s.set(&s.paused, false)
			s.restorePorts(ctx)
			return false, err
		}
	}
	since, kept := time.Time{}, s.record().Lease.Paused
	if why.keep {
		since = s.core.clock.Now()
	}
	if kept != since && (did || why.keep && kept.IsZero()) {
		err = s.changeAsync(func(r *record) { r.Lease.Paused = since })
	}
	if did {
		s.auditAction(ctx, actionPause, why.note)
	}
	return did, err
}

// markPaused marks the session, if it may be paused, so that the next use resumes it.
func (s *Session) markPaused(onlyIdle bool) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return false, nil
	}
	if err := s.usableLocked(); err != nil {
		return false, err
	}
	if !s.runningLocked() {
		return false, proto.Errorf(proto.Conflict, "", s.id, "container %s is %s; only one that runs can be paused",
			s.id, s.rec.State)
	}
	// A running command can wait, and connections to ports are closed. Other operations wait for the guest and would
	// count it as lost.
	if s.users > s.holdingExecs()+s.peers.Len() || onlyIdle && s.users > 0 {
		return false, proto.Errorf(proto.Conflict, "", s.id, "container %s is in use: a command is starting, or "+
			"files are on their way; try again", s.id)
	}
	s.paused = true
	return true, nil
}

// stillPaused reports whether the runtime has it as paused, too. A sandbox that has ended is not paused.
func (s *Session) stillPaused() bool {
	return s.is(&s.paused) && s.core.cfg.Runtime.Paused(s.id)
}

// resume resumes a paused session; it returns at once if the session is not paused. If the sandbox has ended
// meanwhile, the session is stopped.
func (s *Session) resume(ctx context.Context) error {
	if !s.is(&s.paused) {
		return nil
	}
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.resumeLocked(ctx); err != nil {
		return err
	}
	if s.state() == proto.StateRunning {
		s.restorePorts(ctx)
	}
	return nil
}

// resumeOrStart resumes a session for a use. If the sandbox ended while the session was paused, it starts the session
// again, unless the use is for the generation that ended.
func (s *Session) resumeOrStart(ctx context.Context, generation int64) error {
	if err := s.resume(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	runs, err := s.runningLocked(), s.boundLocked(generation)
	s.mu.Unlock()
	if runs || err != nil {
		return err
	}
	return s.ensureStarted(ctx)
}

// resumeLocked does the work of resume, with transition held. Everything that ends a sandbox holds that lock, and a
// command that it ends would wait for it.
func (s *Session) resumeLocked(ctx context.Context) error {
	if !s.is(&s.paused) {
		return nil
	}
	return s.traced(ctx, "container.resume", s.resumePaused)
}

// resumePaused does the work of resumeLocked for a session that is paused.
func (s *Session) resumePaused(ctx context.Context) error {
	err := s.core.cfg.Runtime.Resume(ctx, s.id)
	over := proto.CodeOf(err) == proto.NotFound
	if err != nil && !over {
		return err
	}
	// before a command can start in it, which the handshake would take for an unknown process
	if s.needsHandshake.Load() {
		s.handshake()
	}
	if over { // recorded before it counts as resumed, so that no user believes that it runs
		if err := s.stopVanished(ctx); err != nil {
			return err
		}
	}
	s.set(&s.paused, false)
	if !over {
		s.auditAction(ctx, actionResume, "")
	}
	return nil
}

// stopVanished stops a session whose sandbox the runtime does not find. It asks the guest first, since a runtime that
// cannot look reports the same: a paused guest does not answer, and one that is gone refuses the connection. Called
// with transition held.
func (s *Session) stopVanished(ctx context.Context) error {
	if s.state() != proto.StateRunning {
		return nil
	}
	_, err := s.hello(s.core.ctx)
	switch {
	case err == nil || s.core.ctx.Err() != nil:
		return nil
	case timedOut(err):
		return proto.Errorf(proto.Unavailable, "", s.id, "container %s is paused and could not be resumed; try again",
			s.id)
	case !s.stopLost(ctx, s.Guest()) && s.state() == proto.StateRunning:
		return proto.Errorf(proto.Unavailable, "", s.id, "container %s ended while it was paused, and that could "+
			"not be written down; try again", s.id)
	}
	return nil
}

// resumeToEnd resumes a session that is about to be ended in any case. Called with transition held.
func (s *Session) resumeToEnd(ctx context.Context) {
	if err := s.resumeLocked(ctx); err != nil {
		s.core.cfg.Log.Warn("resuming a container to end it", "container", s.id, "error", err)
	}
}

// repause pauses a session again that Close had to resume to end its commands.
func (s *Session) repause() error {
	if s.is(&s.paused) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.core.cfg.StartTimeout)
	defer cancel()
	err := s.core.cfg.Runtime.Pause(ctx, s.id)
	if proto.CodeOf(err) == proto.NotFound {
		return nil
	}
	return err
}

// pauseForSweep pauses a session for the sweeper. It leaves a session alone that is in use for the reason. Called with
// transition held.
func (ss *Sessions) pauseForSweep(ctx context.Context, s *Session, why pauseReason, done *Swept) error {
	if s.needsHandshake.Load() && !s.is(&s.paused) {
		return nil
	}
	did, err := s.pause(ctx, why)
	countIf(&done.Paused, did)
	switch proto.CodeOf(err) {
	case proto.Conflict, proto.NotFound, proto.Expired: // in use, lost or over, which others handle
		return nil
	}
	return err
}

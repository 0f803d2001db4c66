package session

import (
	"context"
	"strings"
	"time"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
	"berth/session/secrets"
)

// This file has how a session's sandbox is started and stopped.

// lockTransition takes the transition lock, or gives up with ctx. A session that was taken over is met first.
func (s *Session) lockTransition(ctx context.Context) (unlock func(), err error) {
	select {
	case s.transition <- struct{}{}:
		s.handshakeIfAwake()
		return func() { <-s.transition }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tryLockTransition is lockLife for what must not wait: free is false where somebody else has the lock. It meets
// nobody.
func (s *Session) tryLockTransition() (unlock func(), free bool) {
	select {
	case s.transition <- struct{}{}:
		return func() { <-s.transition }, true
	default:
		return nil, false
	}
}

// ensureStarted starts a stopped session. Many callers may want it at once: one starts it, on a context
// that does not end with the caller's, and all wait.
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
		err := s.startGeneration(withCallerOf(s.core.ctx, ctx))
		unlock() // before anybody is told: a sweep that comes then passes over one that is still being started
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

// restartFor starts the session again for e after it was found lost, and is the next generation's client; for
// what is bound to the one before there is none.
func (s *Session) restartFor(ctx context.Context, e *Exec) (*client.Client, error) {
	if _, err := s.clientFor(ctx, nil); err != nil {
		return nil, err
	}
	if err := s.ensureStarted(ctx); err != nil {
		return nil, err
	}
	return s.clientFor(ctx, e)
}

// startGeneration brings the sandbox up as the next generation. If that fails, nothing of it is left.
// Called with life held.
func (s *Session) startGeneration(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.core.cfg.StartTimeout)
	defer cancel()
	if s.unclean { // else the processes that the last stop was to end would be in the next generation
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

// startSandbox starts the next generation. That it exists is on disk when this returns, and gets there meanwhile;
// that it runs has to outlive the daemon alone.
func (s *Session) startSandbox(ctx context.Context) error {
	fresh := s.state() == proto.StateCreating
	if !fresh { // whose record says so already
		if err := s.changeAsync(func(r *record) { r.Generation++ }); err != nil {
			return err
		}
	}
	onDisk, spec := s.core.onDisk(), s.record().spec()
	spec.New = fresh
	if err := s.core.cfg.Runtime.Start(ctx, s.id, spec); err != nil {
		return err
	}
	s.mu.Lock()
	s.guest = s.newGuest()
	s.mu.Unlock()
	hello, err := s.greet(ctx)
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
	if s.core.cfg.Egress != nil && len(s.record().NetworkSecrets) > 0 {
		authority, err := s.core.cfg.Egress.TrustedPEM()
		if err != nil {
			return err
		}
		if err := secrets.InstallCA(ctx, s.client(), authority); err != nil {
			return err
		}
	}
	fixtures := s.reprovision(ctx)
	s.setBoot(hello.Boot)
	now := s.core.clock.now() // a start that took long does not eat the lease
	if err := onDisk(); err != nil {
		return err
	}
	err = s.changeAsync(func(r *record) {
		r.State, r.LastUsed, r.Isolation, r.Mounts = proto.StateRunning, now, iso,
			fixtures
	})
	if err == nil {
		s.auditGeneration(ctx)
	}
	return err
}

// inspect finds out how the sandbox that just came up is isolated.
func (s *Session) inspect(ctx context.Context, hello wire.Hello) (proto.Isolation, error) {
	iso := proto.Isolation{HostUID: -1}
	if i, ok := s.core.cfg.Runtime.(Inspector); ok {
		var err error
		if iso, err = i.Inspect(ctx, s.id); err != nil {
			return iso, err
		}
	}
	if s.record().connected() && iso.Network == string(proto.NetworkNone) {
		iso.Network = proto.ThroughProxy
	}
	const longest = 128 // bytes; the guest is not trusted to be short
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

// stopUnlessStopped ends the sandbox and keeps the files, if it runs.
func (s *Session) stopUnlessStopped(ctx context.Context, why string) error {
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !s.markStopping(false) {
		return nil
	}
	_, err = s.finishStop(ctx, proto.EndStopped, why)
	return err
}

// stopIdle is the sweeper's stop. It leaves a session that is in use, or was used since the caller looked, alone, and
// reports whether it stopped it. Called with life held.
func (s *Session) stopIdle(ctx context.Context) (bool, error) {
	if !s.markStopping(true) {
		return false, nil
	}
	return s.finishStop(ctx, proto.EndStopped, "the container was idle")
}

// markStopping keeps new users out, if there is something to stop: whoever comes now waits for the stop to be
// over and starts it again.
func (s *Session) markStopping(onlyIdle bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != proto.StateRunning {
		return false
	}
	if onlyIdle && (s.users > 0 || s.core.clock.now().Before(s.rec.expires())) {
		return false
	}
	s.stopping = true
	return true
}

// finishStop is stop once it is decided. If that cannot be written down, the session goes on. Called with
// life held and stopping set, which it takes back.
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
	s.auditAct(ctx, actionStop, why)
	return true, s.stopSandbox(ctx)
}

// A stopCause says why the generation of a guest was stopped.
type stopCause struct {
	guest  *client.Client
	reason proto.EndReason
	why    string
}

// stoppedOnRequest is the error of a command that came to the guest g too late: somebody stopped its container
// meanwhile, which it must not start again.
func (s *Session) stoppedOnRequest(g *client.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastStop.guest != g || s.lastStop.reason == proto.EndLost {
		return nil
	}
	return proto.Errorf(proto.Unavailable, "", s.id, "%s while the command was starting; it did not run. Send it "+
		"again to start the container again", s.lastStop.why)
}

// stopSandbox removes the sandbox, and remembers if that did not work. Called with life held.
func (s *Session) stopSandbox(ctx context.Context) error {
	s.closeGuest()
	err := s.core.cfg.Runtime.Stop(ctx, s.id)
	if s.unclean = err != nil; err == nil {
		s.markSandboxGone()
	}
	return err
}

// markSandboxGone takes note that the sandbox is gone, paused or not, and met or not. Called with life held.
func (s *Session) markSandboxGone() {
	if s.needsHandshake.Load() {
		s.endUnattached()
		s.needsHandshake.Store(false)
	}
	s.markResumed()
}

// closeGuest drops this generation's connections.
func (s *Session) closeGuest() {
	s.closePorts()
	s.client().Close()
}

// detach writes down what memory knows and lets go of the guest.
func (s *Session) detach() error {
	err := s.saveRecord()
	s.closeGuest()
	return err
}

// confirmLost is called when the guest g no longer answers. If that is so, its generation is over: the session
// is stopped, unless somebody did that already, and the next use starts it with its files.
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

// sweepLost is lost for the sweeper, which leaves a session that somebody starts, stops or removes to the next sweep.
// It reports whether it was this call that found out.
func (s *Session) sweepLost(ctx context.Context, g *client.Client) bool {
	if s.state() != proto.StateRunning || s.guestAnswers(ctx, g) {
		return false
	}
	unlock, free := s.tryLockTransition()
	if !free {
		return false
	}
	defer unlock()
	return s.state() == proto.StateRunning && s.client() == g && s.stopLost(ctx, g)
}

// guestAnswers reports whether the guest g answers after all, or has a reason not to.
func (s *Session) guestAnswers(ctx context.Context, g *client.Client) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
	defer cancel()
	_, err := g.Hello(ctx)
	return err == nil || s.core.ctx.Err() != nil || s.stillPaused() // or it was we who hung up, in Close
}

// stopLost is lost once that is sure. Called with life held.
func (s *Session) stopLost(ctx context.Context, g *client.Client) bool {
	if s.client() != g || !s.markStopping(false) {
		return true
	}
	s.core.cfg.Log.Warn("container lost; its next use starts it again", "container", s.id)
	if _, err := s.finishStop(context.WithoutCancel(ctx), proto.EndLost,
		"the container ended unexpectedly"); err != nil {
		if !s.gone() { // it may have been deleted meanwhile
			s.core.cfg.Log.Error("stopping a container that was lost", "container", s.id, "error", err)
		}
		return false
	}
	return true
}

// helloTimeout is how long a guest may take to answer before it counts as lost.
const helloTimeout = 5 * time.Second

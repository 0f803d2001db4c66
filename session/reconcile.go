package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"berth/guest"
	"berth/ledger"
	"berth/output"
	"berth/proto"
)

// load reads what the ledger knows into memory.
func (ss *Sessions) load() error {
	execs := map[string][]execRecord{}
	err := ss.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return errors.Join(
			ss.clock.load(tx),
			ledger.Each(tx, bucketSessions, "", func(id string, r record) { ss.byID[id] = newSession(ss, r) }),
			ledger.Each(tx, bucketWorkspaces, "", func(id string, w workspaceRecord) { ss.workspaces[id] = w }),
			ledger.Each(tx, bucketExecs, "", func(key string, r execRecord) {
				id, _, _ := strings.Cut(key, "/")
				execs[id] = append(execs[id], r)
			}),
		)
	})
	if err != nil {
		return err
	}
	ss.openRecords()
	for _, s := range ss.byID {
		ss.index.add(s, s.rec, s.rec.State == proto.StateExpired)
		ss.clock.notBefore(s.rec.latest())
	}
	for id, list := range execs {
		if s := ss.byID[id]; s != nil {
			s.remember(list)
		}
	}
	return ss.clearOutput()
}

// clearOutput removes the kept output of execs that nobody remembers, as a crash leaves.
func (ss *Sessions) clearOutput() error {
	dir := filepath.Join(ss.cfg.Dir, outputDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, s := range ss.byID {
		for _, e := range s.Execs() {
			known[e.id] = true
		}
	}
	for _, f := range entries {
		if !known[f.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
	return err
}

// remember brings back the execs of an earlier daemon.
func (s *Session) remember(list []execRecord) {
	slices.SortFunc(list, func(a, b execRecord) int { return cmpString(a.Exec.ID, b.Exec.ID) })
	for _, r := range list {
		e := s.recalled(r)
		s.begun++
		e.number = s.begun
		s.execs = append(s.execs, e)
	}
	s.trim(keptOutput, nil)
}

// recalled makes an exec of its record. One that was still running is lost, since its guest ended it with the
// daemon's connection; but a durable one runs on, until reconcile finds out otherwise.
func (s *Session) recalled(r execRecord) *Exec {
	switch {
	case r.Exec.State != proto.ExecRunning:
		return s.recall(r)
	case r.Run != nil:
		return s.recallRunning(r)
	}
	r = s.lostExec(r)
	e := s.recall(r)
	e.tellEnd(r.Exec, e.made)
	return e
}

// recall makes an ended exec from its record and what was kept of its output.
func (s *Session) recall(r execRecord) *Exec {
	e := &Exec{s: s, veil: s.veil, id: r.Exec.ID, key: r.Key, retry: r.Retry, info: r.Exec, ask: make(chan ending, 1), ended: make(chan struct{}), left: make(chan struct{})}
	e.out, _ = output.Load(nil, r.Exec.StdoutBytes, r.Exec.StderrBytes, nil)
	if fi, err := os.Stat(e.outputPath()); err == nil {
		e.saved = fi.Size()
		s.core.spooled.Add(e.saved)
	}
	e.spooled = true // what is not on disk either shows as a gap
	e.made = Produced{FileIDs: r.Files, Notes: r.Notes}
	close(e.ended)
	return e
}

// reconcileParallel is how many sandboxes are looked at together at start.
const reconcileParallel = 8

// reconcile makes ledger and runtime agree after a restart, whatever the last daemon was in the
// middle of: live sandboxes are attached to again, half-made sessions are undone, removals that had
// begun are finished, and what belongs to nobody is removed.
func (ss *Sessions) reconcile(ctx context.Context) error {
	inv, err := ss.cfg.Runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, reconcileParallel)
	for _, s := range ss.snapshot() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := ss.settle(ctx, s, slices.Contains(inv.Sandboxes, s.id)); err != nil {
				ss.cfg.Log.Error("reconciling a container; a sweep will try again", "container", s.id, "error", err)
			}
		})
	}
	wg.Wait()
	var done Swept
	if err := ss.sweepStrangers(ctx, &done); err != nil {
		ss.cfg.Log.Error("removing leftovers; a sweep will try again", "error", err)
	}
	ss.cfg.Log.Info("sessions reconciled", "sessions", len(ss.byID), "stray_sandboxes", done.Sandboxes, "stray_workspaces", done.Workspaces)
	return nil
}

// settle decides what a session's record means now. there says whether its sandbox is listed.
func (ss *Sessions) settle(ctx context.Context, s *Session, there bool) error {
	rec := s.record()
	if there && s.foundPaused() {
		return nil
	}
	hello, ok := guest.Hello{}, false
	if rec.State == proto.StateRunning && !rec.Delete && there {
		hello, ok = s.answers(ctx)
	}
	if !ok {
		s.desert()
	}
	switch {
	case rec.Delete:
		return ss.finishRemove(ctx, s)
	case rec.State == proto.StateCreating && ss.sameHost(rec.Host): // its creator never got an answer
		s.markUndone()
		return ss.finishRemove(ctx, s)
	case rec.State == proto.StateExpired:
		return ss.leaveName(ctx, s)
	case ok:
		s.mu.Lock()
		s.touch() // the time without a daemon does not eat the lease
		s.mu.Unlock()
		s.rejoin(ctx, hello)
		return nil
	}
	if there {
		if err := ss.cfg.Runtime.Stop(ctx, s.id); err != nil {
			return err
		}
	}
	if rec.State == proto.StateStopped {
		return nil
	}
	return s.jot(func(r *record) { r.State = proto.StateStopped })
}

// sameHost reports whether boot is the present one of the host, or is not known. In another one a session that was made may not be on
// disk as more than begun: see bringUp.
func (ss *Sessions) sameHost(boot string) bool { return boot == "" || ss.host == "" || boot == ss.host }

// answers reports whether the session's guest is there, and which one it is.
func (s *Session) answers(ctx context.Context) (guest.Hello, bool) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	hello, err := s.client().Hello(ctx)
	return hello, err == nil
}

package e2b

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"berth/api/e2b/templates"
	"berth/proto"
	"berth/session"
)

const (
	// readyWithin is how long a new sandbox may take until the ready command of its template succeeds. Clients wait for
	// a sandbox for a minute.
	readyWithin = 50 * time.Second
	// readyEvery is how long after the end of a ready command that failed the next one begins.
	readyEvery = 200 * time.Millisecond
)

// asleep is a ready command that waits for a time, and asks nothing.
var asleep = regexp.MustCompile(`^\s*sleep [0-9.]+\s*$`)

// begin returns where processes of a sandbox begin that name no user and no directory: where its template says, or ""
// for the usual user and directory.
func (e *Edge) begin(ctx context.Context, s *session.Session) (user, dir string) {
	img, err := e.cfg.Images.Resolve(ctx, s.Info().ImageDigest)
	if err != nil { // it may have been removed: the sandbox has what it needs of it
		return "", ""
	}
	return templates.Begin(img)
}

// start runs the start command of a template in a new sandbox, and waits until its ready command succeeds. A sandbox
// that does not become ready is removed.
func (e *Edge) start(ctx context.Context, s *session.Session, f templates.Facts) error {
	if f.Start == "" && f.Ready == "" {
		return nil
	}
	waiting, cancel := context.WithTimeoutCause(ctx, readyWithin, proto.Errorf(proto.TimedOut, "", "readyCmd",
		"the ready command of the template has not succeeded within %v; it was: %.200s", readyWithin, f.Ready))
	defer cancel()
	err := e.startReady(waiting, s, f)
	if err == nil || ctx.Err() != nil { // a client that has gone may come back with its idempotency key
		return err
	}
	if waiting.Err() != nil {
		err = context.Cause(waiting)
	}
	if removeErr := e.cfg.Sessions.Delete(ctx, s.Owner(), s.ID(), false); removeErr != nil {
		e.cfg.Log.Error("removing a sandbox that did not become ready", "container", s.ID(), "err", removeErr)
	}
	return err
}

// startReady runs the two commands.
func (e *Edge) startReady(ctx context.Context, s *session.Session, f templates.Facts) error {
	user, dir := e.begin(ctx, s)
	cmd := proto.Cmd{User: cmp.Or(user, proto.UserDefault), Cwd: cmp.Or(dir, "/"), Background: true}
	var started *session.Exec
	if f.Start != "" {
		start := cmd
		start.Argv, start.Detach = templates.Shell(f.Start), true
		var err error
		if started, err = s.Exec(ctx, start); err != nil {
			return fmt.Errorf("starting the template's start command: %w", err)
		}
	}
	if f.Ready == "" {
		return nil
	}
	cmd.Argv, cmd.TimeoutSeconds = templates.Shell(f.Ready), readyWithin.Seconds()
	for {
		x, err := s.Exec(ctx, cmd)
		if err != nil {
			return fmt.Errorf("starting the template's ready command: %w", err)
		}
		ready, err := awaitReady(ctx, x, started, f)
		if ready || err != nil {
			x.Cancel(proto.EndCanceled, "the sandbox is ready, or will not be")
			return err
		}
		select {
		case <-time.After(readyEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitReady waits for the end of a ready command. The start command may end meanwhile, which is an error if it failed.
func awaitReady(ctx context.Context, x, started *session.Exec, f templates.Facts) (ready bool, err error) {
	var ended <-chan struct{}
	if started != nil {
		ended = started.Done()
	}
	for {
		select {
		case <-x.Done():
			end := x.Info().End
			return end != nil && end.ReturnCode == 0, nil
		case <-ended:
			if err := failedStart(ctx, started, f); err != nil || asleep.MatchString(f.Ready) {
				return true, err
			}
			ended = nil // it has left a server behind, or will never be ready
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// failedStart returns the error of a start command that has ended, or nil if it ended well: it may have left a server
// behind.
func failedStart(ctx context.Context, x *session.Exec, f templates.Facts) error {
	res, err := x.Wait(ctx)
	if err != nil || res.Exec.End == nil || res.Exec.End.ReturnCode == 0 {
		return err
	}
	said := ""
	if r := res.Result.Result; r != nil {
		said = strings.TrimSpace(r.Stderr)
	}
	return proto.Errorf(proto.InvalidArgument, "", "startCmd", "the start command of the template ended with %d: "+
		"%.200s: %.1000s", res.Exec.End.ReturnCode, f.Start, said[max(0, len(said)-1000):])
}

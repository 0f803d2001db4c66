package code

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/proto"
	"berth/session"
)

// A NewContext asks for a context.
type NewContext struct {
	Name     string `json:"name" schema:"newName"` // 1 to 64 letters, digits, '-' and '_'.
	Language string `json:"language,omitempty" schema:"language"`
	// The job in whose directory it works; default the job of the container.
	JobID string `json:"job_id,omitempty" schema:"jobName"`
	// Added to the environment of the container.
	Env map[string]string `json:"env,omitempty" schema:"env"`
	// More environment; the values are replaced wherever cells are recorded.
	Secrets map[string]string `json:"secrets,omitempty" schema:"secrets"`
}

// MaxContexts is how many contexts a container may have.
const MaxContexts = 8

// A notebook is a context: a name, and the interpreter that currently runs for it.
type notebook struct {
	s    *session.Session
	ask  NewContext
	lang language

	turn chan struct{} // holds one token: the right to run a cell, or to replace the interpreter

	mu      sync.Mutex // guards what follows
	in      *interpreter
	busy    bool
	used    time.Time
	stopped bool // it was deleted: no other interpreter may start

	created time.Time
}

// info returns the context as callers see it.
func (n *notebook) info() Context {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := Context{
		Name: n.ask.Name, ContainerID: n.s.ID(), Language: n.lang.name, State: proto.ContextIdle,
		CreatedAt: proto.At(n.created), LastUsedAt: proto.At(n.used),
	}
	in := n.in
	if in != nil {
		c.ExecID, c.Cells = in.exec.ID(), in.sent()
	}
	if in != nil && in.over() {
		c.State, c.Note = proto.ContextEnded, in.endReason()
	}
	if n.busy {
		c.State = proto.ContextBusy
	}
	return c
}

// sent returns how many cells an interpreter has received.
func (in *interpreter) sent() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.cells
}

// over reports whether the interpreter has ended.
func (in *interpreter) over() bool {
	select {
	case <-in.ended:
		return true
	default:
		return false
	}
}

// endReason says why an interpreter ended. The caller has seen that it has.
func (in *interpreter) endReason() string {
	if in.last == nil {
		return "the daemon let go of it"
	}
	switch end := in.last.Exec.End; end.Reason {
	case proto.EndExit:
		return fmt.Sprintf("it exited with status %d", end.ReturnCode)
	case proto.EndSignal:
		return "it was ended by " + end.Signal
	default:
		if end.Message == "" {
			return string(end.Reason)
		}
		return end.Message
	}
}

// acquire waits for the right to run a cell, or for the end of ctx. release gives the right back.
func (n *notebook) acquire(ctx context.Context) (release func(), err error) {
	select {
	case n.turn <- struct{}{}:
		return func() { <-n.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// liveInterpreter returns the interpreter, and starts it if there is none. notes say whether an earlier one was lost.
// The caller has acquired the notebook.
func (n *notebook) liveInterpreter(ctx context.Context, r *Runner) (in *interpreter, notes []string, err error) {
	n.mu.Lock()
	in, stopped := n.in, n.stopped
	n.mu.Unlock()
	if stopped {
		return nil, nil, n.missing()
	}
	if in != nil && !in.over() {
		return in, nil, nil
	}
	if in != nil {
		notes = []string{fmt.Sprintf("this is a fresh interpreter, without what cells before this one defined: of "+
			"the earlier one, %s", in.endReason())}
	}
	if in, err = n.startInterpreter(ctx, r); err != nil {
		return nil, nil, err
	}
	return in, notes, nil
}

// startInterpreter starts an interpreter. The caller has acquired the notebook.
func (n *notebook) startInterpreter(ctx context.Context, r *Runner) (*interpreter, error) {
	cmd := n.lang.command()
	cmd.Shown = fmt.Sprintf("%s context %s", n.lang.name, n.ask.Name)
	cmd.JobID, cmd.Env, cmd.Secrets = n.ask.JobID, n.ask.Env, n.ask.Secrets
	cmd.OpenStdin, cmd.Resident = true, true
	in, err := startInterpreter(ctx, n.s, n.lang, cmd)
	if err != nil {
		return nil, err
	}
	r.wg.Go(func() { in.follow(r.ctx) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in = in
	if n.stopped { // deleted meanwhile
		in.exec.Cancel(proto.EndKilled, "its context was deleted")
	}
	return in, nil
}

// endInterpreter ends the interpreter, if there is one, and waits for its end.
func (n *notebook) endInterpreter(ctx context.Context, why string) error {
	n.mu.Lock()
	in := n.in
	n.mu.Unlock()
	if in == nil || in.over() {
		return nil
	}
	in.exec.Cancel(proto.EndKilled, why)
	select {
	case <-in.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *notebook) setBusy(busy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy, n.used = busy, time.Now()
}

func (n *notebook) missing() error { return noContext(n.s.ID(), n.ask.Name) }

func noContext(container, name string) error {
	return proto.Errorf(proto.NotFound, "", name, "context %.80q does not exist in container %s; running a cell in "+
		"it makes it", name, container)
}

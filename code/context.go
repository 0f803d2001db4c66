package code

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"berth/code/cell"
	"berth/proto"
	"berth/session"
)

// A NewContext asks for a context.
type NewContext struct {
	Name     string `json:"name" schema:"newName"` // 1 to 64 letters, digits, '-' and '_'.
	Language string `json:"language,omitempty" schema:"language"`
	// The job in whose directory it works; default the job of the container.
	JobID string `json:"job_id,omitempty" schema:"jobName"`
	// The user that it runs as: user (default), root, or another user of the container.
	User string `json:"user,omitempty" schema:"user"`
	// Working directory: absolute, or relative to the directory of the job, which is the default.
	Cwd string `json:"cwd,omitempty" schema:"maxLength=4095 noNUL"`
	// Added to the environment of the container.
	Env map[string]string `json:"env,omitempty" schema:"env"`
	// More environment; the values are replaced wherever cells are recorded.
	Secrets map[string]string `json:"secrets,omitempty" schema:"secrets"`
}

// A notebook is a context: a name, and the interpreter that currently runs for it.
type notebook struct {
	s       *session.Session
	ask     NewContext
	lang    language
	created time.Time

	turn chan struct{} // holds one token: the right to run a cell, or to replace the interpreter

	mu      sync.Mutex // guards what follows
	in      *interpreter
	busy    bool
	used    time.Time
	stopped bool // it was deleted: no other interpreter may start
}

// info returns the context as callers see it.
func (n *notebook) info() Context {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := Context{
		Name: n.ask.Name, ContainerID: n.s.ID(), Language: n.lang.name, State: proto.ContextIdle,
		User: cmp.Or(n.ask.User, proto.UserDefault), Cwd: n.ask.Cwd,
		CreatedAt: proto.At(n.created), LastUsedAt: proto.At(n.used),
	}
	if in := n.in; in != nil {
		in.mu.Lock()
		c.ExecID, c.Cells = in.exec.ID(), in.cells
		in.mu.Unlock()
		if in.over() {
			c.State, c.Note = proto.ContextEnded, in.endReason()
		}
	}
	if n.busy {
		c.State = proto.ContextBusy
	}
	return c
}

// interpreter returns the latest interpreter, or nil.
func (n *notebook) interpreter() *interpreter {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.in
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
		return nil, nil, noContext(n.s.ID(), n.ask.Name)
	}
	if in != nil && !in.over() {
		return in, nil, nil
	}
	cmd := n.lang.command()
	cmd.Shown = fmt.Sprintf("%s context %s", n.lang.name, n.ask.Name)
	why := n.earlierEnd(cmd.Shown)
	if in != nil {
		why = in.endReason()
	}
	if why != "" {
		notes = []string{"this is a fresh interpreter, without the variables of earlier cells; the earlier " +
			"interpreter ended: " + why}
	}
	cmd.JobID, cmd.User, cmd.Cwd, cmd.Env, cmd.Secrets = n.ask.JobID, n.ask.User, n.ask.Cwd, n.ask.Env, n.ask.Secrets
	if in, err = r.startResident(ctx, n.s, n.lang, cmd); err != nil {
		return nil, nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in = in
	if n.stopped { // deleted meanwhile
		in.exec.Cancel(proto.EndKilled, "its context was deleted")
	}
	return in, notes, nil
}

// earlierEnd says why the latest interpreter ended that an earlier daemon ran for a context of this name. It returns ""
// if there was none, or if it was ended on request.
func (n *notebook) earlierEnd(shown string) string {
	for _, e := range slices.Backward(n.s.Execs()) {
		if info := e.Info(); info.Command == shown {
			if info.End == nil || info.End.Reason == proto.EndKilled {
				return ""
			}
			return endReason(*info.End)
		}
	}
	return ""
}

// startFresh starts the interpreter of a new or restarted context and waits until it is ready: an image without it is
// an error. An empty cell, which is not counted, ends when the driver has started.
func (n *notebook) startFresh(ctx context.Context, r *Runner) error {
	release, err := n.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	in, _, err := n.liveInterpreter(ctx, r)
	if err != nil {
		return err
	}
	c := cell.New(0, n.s.OutputBudget())
	defer c.Close()
	if _, err := in.runCell(ctx, c, c.Request(0, cell.ModeCell, ""), r.timeout, nil); err != nil {
		return err
	}
	if in.over() {
		return in.checkInstalled(n.s)
	}
	return nil
}

// endInterpreter ends the interpreter, if there is one, and waits for its end.
func (n *notebook) endInterpreter(ctx context.Context, why string) error {
	in := n.interpreter()
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

func noContext(container, name string) error {
	return proto.Errorf(proto.NotFound, "", name, "context %.80q does not exist in container %s; running a cell in "+
		"it creates it", name, container)
}

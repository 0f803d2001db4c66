package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// A Target is what one case attacks: a daemon, and the case's own containers in one runtime class. Only one goroutine
// at a time may use it, except for its Client.
type Target struct {
	*client.Client
	Host   string             // base URL of the daemon
	Key    string             // API key for the daemon
	Class  proto.RuntimeClass // runtime class of the containers that Container creates; "" is the daemon's default
	Rounds int                // rounds of a race
	Quick  bool               // use shorter variants

	program   string                        // file of the probe
	tenant    *tenant                       // another tenant of the same daemon
	neighbour *Target                       // created on the first use of Neighbour
	made      []string                      // containers to remove at the end of the case
	undo      []func(context.Context) error // other cleanup at the end of the case
}

// newTarget returns the target for one case in one class.
func newTarget(o Options, class proto.RuntimeClass, other *tenant) *Target {
	return &Target{Client: o.Client, Host: o.Client.Host(), Key: o.Client.Key(), Class: class, Rounds: o.rounds(),
		Quick: o.Quick, program: o.Program, tenant: other}
}

// Container creates a container of the target's class and removes it at the end of the case, even if the case fails.
func (t *Target) Container(ctx context.Context, req proto.CreateContainer) (proto.Container, error) {
	if req.RuntimeClass == "" {
		req.RuntimeClass = t.Class
	}
	if req.MaxLifetimeSeconds == 0 {
		req.MaxLifetimeSeconds = 3600 // if this program is killed, the daemon cleans up
	}
	con, err := t.Create(ctx, req)
	if err == nil {
		t.made = append(t.made, con.ID)
	}
	return con, err
}

// onLoopback reports whether the daemon is reached at an address of loopback.
func (t *Target) onLoopback() bool {
	u, err := url.Parse(t.Host)
	return err == nil && net.ParseIP(u.Hostname()).IsLoopback()
}

// Later registers cleanup for the end of the case. It runs in reverse order, before the containers are removed. It is
// for keys, images and stored files.
func (t *Target) Later(undo func(context.Context) error) { t.undo = append(t.undo, undo) }

// Bash runs a script as the default user in a container and waits for its end. A script that fails is no error. The
// time limit is far above what any script here takes.
func (t *Target) Bash(ctx context.Context, container, script string) (proto.ExecResult, error) {
	return t.Do(ctx, container, proto.Cmd{Command: script, TimeoutSeconds: 120})
}

// Do runs a command in a container and waits for its end. It starts and waits in two requests, as a client does that
// needs the exec's ID.
func (t *Target) Do(ctx context.Context, container string, cmd proto.Cmd) (proto.ExecResult, error) {
	e, err := t.Launch(ctx, container, cmd)
	if err != nil {
		return proto.ExecResult{}, err
	}
	return t.Wait(ctx, container, e.ID)
}

// Output runs a script that must succeed, as a user ("" is the default user), and returns its output. If failure of
// the script is a finding, use Do.
func (t *Target) Output(ctx context.Context, container, user, script string) (string, error) {
	res, err := t.Do(ctx, container, proto.Cmd{Command: script, User: user, TimeoutSeconds: 120})
	if err != nil {
		return "", err
	}
	if r := res.Result.Result; r != nil && r.ReturnCode == 0 {
		return strings.TrimSpace(r.Stdout), nil
	}
	return "", fmt.Errorf("a command in the container did not end well: %s", describe(res))
}

// probePath is the path of this program in a container. The dot hides it from "ls"; every container has /tmp.
const probePath = "/tmp/.probe"

// ProbeCommand is the hidden command of this program that runs a probe inside a container.
const ProbeCommand = "attack-probe"

// Probe runs a probe in a container as the given user ("" is the default user) and decodes its output into out. It
// first copies the probe if it is missing; a restarted container has lost it.
func (t *Target) Probe(ctx context.Context, container, user, name string, out any, args ...string) error {
	if err := t.PutProbe(ctx, container); err != nil {
		return fmt.Errorf("copying the probe: %w", err)
	}
	res, err := t.Do(ctx, container, proto.Cmd{Argv: append([]string{probePath, ProbeCommand, name}, args...),
		User: user, TimeoutSeconds: 300})
	if err != nil {
		return err
	}
	r := res.Result.Result
	if r == nil || r.ReturnCode != 0 {
		return fmt.Errorf("the probe %s did not end well: %s", name, describe(res))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal([]byte(r.Stdout), out)
}

// describe describes how an exec ended, for a report. It includes the last 300 bytes of stderr, which contain the
// reason.
func describe(res proto.ExecResult) string {
	end := res.Exec.End
	if end == nil {
		return "it has no end"
	}
	text := fmt.Sprintf("%s, code %d", end.Reason, end.ReturnCode)
	if end.Message != "" {
		text += " (" + end.Message + ")"
	}
	if r := res.Result.Result; r != nil && r.Stderr != "" {
		text += ": " + r.Stderr[max(0, len(r.Stderr)-300):]
	}
	return strings.TrimSpace(text)
}

// PutProbe copies this program into a container, once, as /tmp/.probe. It uses the API, so it also works with a
// daemon on another machine.
func (t *Target) PutProbe(ctx context.Context, container string) error {
	fs := t.FS(container, proto.UserDefault)
	if _, err := fs.Stat(ctx, probePath); err == nil {
		return nil
	}
	program := t.program
	if program == "" {
		program = "/proc/self/exe"
	}
	self, err := os.Open(program)
	if err != nil {
		return err
	}
	defer self.Close()
	info, err := self.Stat()
	if err != nil {
		return err
	}
	_, err = fs.Write(ctx, probePath, 0o755, self, info.Size())
	return err
}

// tidyTimeout limits the cleanup of a case. The cleanup continues after the user has interrupted the run.
const tidyTimeout = 2 * time.Minute

// tidy undoes what a case did, in reverse order: a key can be revoked only when nothing needs it any more.
func (t *Target) tidy() error {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTimeout)
	defer cancel()
	var errs []error
	if t.neighbour != nil {
		errs = append(errs, t.neighbour.tidy())
	}
	for i := len(t.undo) - 1; i >= 0; i-- {
		errs = append(errs, t.undo[i](ctx))
	}
	for _, id := range t.made {
		// A case may have removed its container itself.
		if _, err := t.Delete(ctx, id, false); err != nil && proto.CodeOf(err) != proto.NotFound &&
			proto.CodeOf(err) != proto.Expired {
			errs = append(errs, err)
		}
	}
	t.made, t.undo = nil, nil
	return errors.Join(errs...)
}

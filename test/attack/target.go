package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// A Target is what one case attacks: a daemon, and containers of its own of one runtime class. It is used by one
// goroutine at a time, but for its Client.
type Target struct {
	*client.Client
	Host   string             // the daemon's base URL
	Key    string             // an API key of it
	Class  proto.RuntimeClass // of the containers that Container makes; "" is the daemon's default
	Rounds int                // how often a race is run
	Quick  bool               // shorten what can be shortened

	program   string                        // the file that becomes the probe
	tenant    *tenant                       // somebody else at the same daemon
	neighbour *Target                       // made at the first use of Neighbour
	made      []string                      // containers to remove when the case is over
	undo      []func(context.Context) error // what else to take back then
}

// newTarget is made anew for each case and class.
func newTarget(o Options, class proto.RuntimeClass, other *tenant) *Target {
	return &Target{Client: o.Client, Host: o.Client.Host(), Key: o.Client.Key(), Class: class, Rounds: o.rounds(),
		Quick: o.Quick, program: o.Program, tenant: other}
}

// Container makes a container of the target's class, which is removed when the case is over.
// The rest of its containers goes as well if the case fails half way.
func (t *Target) Container(ctx context.Context, req proto.CreateContainer) (proto.Container, error) {
	if req.RuntimeClass == "" {
		req.RuntimeClass = t.Class
	}
	if req.MaxLifetimeSeconds == 0 {
		req.MaxLifetimeSeconds = 3600 // should this program be killed, the daemon tidies up
	}
	con, err := t.Create(ctx, req)
	if err == nil {
		t.made = append(t.made, con.ID)
	}
	return con, err
}

// Later has something taken back when the case is over, last first, before its containers are removed.
// It is for what is not a container: keys, images, stored files.
func (t *Target) Later(undo func(context.Context) error) { t.undo = append(t.undo, undo) }

// Bash runs a script as the default user in a container and waits for its end. A script that fails is no error.
// The time limit is far above what any script here takes.
func (t *Target) Bash(ctx context.Context, container, script string) (proto.ExecResult, error) {
	return t.Do(ctx, container, proto.Cmd{Command: script, TimeoutSeconds: 120})
}

// Do runs a command in a container and waits for its end.
// It starts and waits in two requests, as a client does that wants the exec's ID.
func (t *Target) Do(ctx context.Context, container string, cmd proto.Cmd) (proto.ExecResult, error) {
	e, err := t.Launch(ctx, container, cmd)
	if err != nil {
		return proto.ExecResult{}, err
	}
	return t.Wait(ctx, container, e.ID)
}

// Output runs a script that must end well, as a user ("" is the default one), and returns what it printed.
// Where the script's failing is itself the finding, Do is used.
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

// probePath is where this program is put in a container.
// A dot hides it from "ls", /tmp is in every container.
const probePath = "/tmp/.probe"

// ProbeCommand is the hidden command of this program that runs a probe inside a container.
const ProbeCommand = "attack-probe"

// Probe runs a probe in a container as the given user ("" is the default one) and decodes what it prints into out.
// The probe is copied first if it is not there; a container that was started again has lost it.
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

// describe says how an exec ended, for a report.
// The last 300 bytes of stderr, where the reason stands.
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

// PutProbe copies this program into a container, once, as /tmp/.probe.
// Copying goes by the API, so that it works with a daemon on another machine, too.
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

// tidyTimeout bounds the removal of what a case made. It goes on when the user has interrupted the run.
const tidyTimeout = 2 * time.Minute

// tidy takes back what a case did.
// The order is the reverse of what was done, as a key can be revoked only when nothing needs it any more.
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

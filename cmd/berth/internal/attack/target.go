package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"berth/cmd/berth/internal/client"
	"berth/proto"
)

// A Target is what one case attacks: a daemon, and containers of its own of one runtime class.
type Target struct {
	*client.Client
	Host  string             // the daemon's base URL
	Key   string             // an API key of it
	Class proto.RuntimeClass // of the containers that Container makes; "" is the daemon's default

	made []string // containers to remove when the case is over
}

// Container makes a container of the target's class, which is removed when the case is over.
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

// Bash runs a script in a container and waits for its end. A script that fails is no error.
func (t *Target) Bash(ctx context.Context, container, script string) (proto.ExecResult, error) {
	return t.Do(ctx, container, proto.Cmd{Command: script, TimeoutSeconds: 120})
}

// Do runs a command in a container and waits for its end.
func (t *Target) Do(ctx context.Context, container string, cmd proto.Cmd) (proto.ExecResult, error) {
	e, err := t.Launch(ctx, container, cmd)
	if err != nil {
		return proto.ExecResult{}, err
	}
	return t.Wait(ctx, container, e.ID)
}

// probePath is where this program is put in a container.
const probePath = "/tmp/.probe"

// ProbeCommand is the hidden command of this program that runs a probe inside a container.
const ProbeCommand = "attack-probe"

// Probe runs a probe in a container as the given user ("" is the default one) and decodes what it prints into out.
func (t *Target) Probe(ctx context.Context, container, user, name string, out any, args ...string) error {
	if err := t.putProbe(ctx, container); err != nil {
		return fmt.Errorf("copying the probe: %w", err)
	}
	res, err := t.Do(ctx, container, proto.Cmd{Argv: append([]string{probePath, ProbeCommand, name}, args...), User: user, TimeoutSeconds: 300})
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
func describe(res proto.ExecResult) string {
	end := res.Exec.End
	if end == nil {
		return "it has no end"
	}
	text := fmt.Sprintf("%s, code %d", end.Reason, end.ReturnCode)
	if r := res.Result.Result; r != nil && r.Stderr != "" {
		text += ": " + r.Stderr[max(0, len(r.Stderr)-300):]
	}
	return text
}

// putProbe copies this program into a container, once.
func (t *Target) putProbe(ctx context.Context, container string) error {
	fs := t.FS(container, proto.UserDefault)
	if _, err := fs.Stat(ctx, probePath); err == nil {
		return nil
	}
	self, err := os.Open("/proc/self/exe")
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

// tidy removes the containers that a case made.
func (t *Target) tidy() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, id := range t.made {
		if _, err := t.Delete(ctx, id, false); err != nil && proto.CodeOf(err) != proto.NotFound {
			errs = append(errs, err)
		}
	}
	t.made = nil
	return errors.Join(errs...)
}

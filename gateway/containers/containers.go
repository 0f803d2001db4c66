// Package containers runs the tool calls of model turns in sessions.
//
// It implements gateway.Containers on top of the core: containers, their files and skills, commands, the editor,
// Python, and code that calls client tools. It does not know turns and dialects. The daemon opens a Host and passes
// it to the gateway.
package containers

import (
	"context"
	"sync"
	"time"

	"berth/artifacts"
	"berth/code"
	"berth/gateway"
	"berth/proto"
	"berth/session"
	"berth/tools/bridge"
	"berth/tools/bridge/provider"
	"berth/tools/skills"
	"berth/tools/tooluse"
)

// Config configures a Host. All fields except Skills must be set.
type Config struct {
	Sessions *session.Sessions
	Code     *code.Runner
	Jobs     *artifacts.Jobs
	Bridge   *bridge.Bridge // for code that calls client tools
	Files    Files
	Skills   Skills // nil: requests with skills are refused
}

// Files finds stored files.
type Files interface {
	Get(ctx context.Context, owner, id string) (proto.StoredFile, error)
}

// Skills finds skills and mounts them into containers.
type Skills interface {
	Resolve(ctx context.Context, owner string, refs []proto.SkillRef) ([]skills.Version, error)
	Mount(ctx context.Context, s *session.Session, owner string, refs []proto.SkillRef) ([]proto.SkillRef, error)
}

// A Host finds and creates containers for turns. It implements gateway.Containers.
type Host struct {
	cfg  Config
	runs codeRuns
}

// New returns a Host.
func New(cfg Config) *Host { return &Host{cfg: cfg} }

// Close ends all code that waits for a client.
func (h *Host) Close() error {
	h.runs.expire(0)
	h.runs.all.Wait()
	return nil
}

// Forget ends the code that has waited for its client that long. It returns how many pieces it ended.
func (h *Host) Forget(after time.Duration) int { return h.runs.expire(after) }

// ResolveSkills finds skills.
func (h *Host) ResolveSkills(ctx context.Context, owner string, refs []proto.SkillRef) ([]gateway.Skill, error) {
	if h.cfg.Skills == nil {
		return nil, proto.Errorf(proto.Unsupported, "", "container.skills", "This daemon has no skills.")
	}
	versions, err := h.cfg.Skills.Resolve(ctx, owner, refs)
	if err != nil {
		return nil, err
	}
	list := make([]gateway.Skill, len(versions))
	for i, v := range versions {
		list[i] = gateway.Skill{Name: v.Name, Description: v.Description}
	}
	return list, nil
}

// Find returns a container. If the container has expired, Find returns it together with an error.
func (h *Host) Find(owner, id string) (gateway.Container, error) {
	s, err := h.cfg.Sessions.Get(owner, id)
	if s == nil {
		return nil, err
	}
	return container{h, s}, err
}

// CheckConfinement refuses a confinement that no container of this daemon can have.
func (h *Host) CheckConfinement(asked proto.Confinement) error {
	return h.cfg.Sessions.CheckConfinement(asked)
}

// Create creates a container.
func (h *Host) Create(ctx context.Context, owner string, asked proto.Confinement) (gateway.Container, error) {
	s, err := h.cfg.Sessions.Create(ctx, owner, proto.CreateContainer{RuntimeClass: asked.RuntimeClass,
		Limits: asked.Limits})
	if err != nil {
		return nil, err
	}
	return container{h, s}, nil
}

// The bridge must accept as many tools as the gateway allows.
const _ = uint(provider.MaxTools - gateway.MaxClientTools)

// CheckTool refuses a tool that code cannot call. field names the tool in the error.
func (h *Host) CheckTool(field string, t gateway.ClientTool) error {
	_, err := provider.Prepare(field, bridgeTool(t))
	return err
}

func bridgeTool(t gateway.ClientTool) provider.Tool {
	return provider.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema, Async: true}
}

// A container is the session of a turn.
type container struct {
	h *Host
	s *session.Session
}

// Ref returns the reference to the container.
func (c container) Ref() proto.ContainerRef { return c.s.Ref() }

// Confinement returns the runtime class and the limits of the container.
func (c container) Confinement() proto.Confinement {
	info := c.s.Info()
	return proto.Confinement{RuntimeClass: info.RuntimeClass, Limits: info.Limits}
}

// MountSkills mounts skills. It returns the references with their versions resolved.
func (c container) MountSkills(ctx context.Context, refs []proto.SkillRef) ([]proto.SkillRef, error) {
	return c.h.cfg.Skills.Mount(ctx, c.s, c.s.Owner(), refs)
}

// PutFiles puts stored files into the input directory. It returns the paths of all files there, by ID.
func (c container) PutFiles(ctx context.Context, ids []string) (map[string]string, error) {
	release, err := c.s.Hold(ctx, ids)
	if err != nil {
		return nil, err
	}
	release()
	return c.h.cfg.Jobs.Inputs(c.s)
}

// Delete deletes the container.
func (c container) Delete(ctx context.Context) error {
	return c.h.cfg.Sessions.Delete(ctx, c.s.Owner(), c.s.ID(), false)
}

// Run runs a call of a turn.
func (c container) Run(ctx context.Context, r gateway.Run) (res *gateway.Result, err error) {
	switch r.Tool {
	case gateway.Bash, gateway.Editor:
		res, err = c.runTool(ctx, r)
	default:
		res, err = c.runCode(ctx, r)
	}
	if res != nil {
		c.leaveOutNested(ctx, res)
	}
	return res, err
}

// toolNames maps tools to their names in package tooluse.
var toolNames = map[gateway.Tool]string{
	gateway.Bash:   "bash_code_execution",
	gateway.Editor: "text_editor_code_execution",
}

// runTool runs a command or the editor. If ctx ends because the daemon is about to end, it leaves a running command to
// the next daemon, which finds the command by its idempotency key.
func (c container) runTool(ctx context.Context, r gateway.Run) (*gateway.Result, error) {
	use := tooluse.Use{Type: "server_tool_use", ID: r.ID, Name: toolNames[r.Tool], Input: r.Input}
	if r.Tool == gateway.Bash {
		use.IdempotencyKey = r.Key
	}
	var started *session.Exec
	var listeners sync.WaitGroup
	use.Started = func(e *session.Exec) {
		started = e
		if r.Output != nil {
			// an error means that the client has disconnected; the command continues
			listeners.Go(func() {
				_ = e.Follow(ctx, session.Cursor{}, func(ev proto.Event) error {
					if ev.Type != proto.EventStdout && ev.Type != proto.EventStderr {
						return nil
					}
					return r.Output(gateway.Output{Stream: string(ev.Type), Text: ev.Data, Bytes: ev.DataBase64})
				})
			})
		}
	}
	res, err := tooluse.Run(ctx, c.s, use)
	if err != nil && started != nil {
		select {
		case <-r.Draining:
			return nil, err
		default:
		}
		started.Abandon(ctx)
	}
	listeners.Wait()
	if err != nil {
		return &gateway.Result{Err: err}, nil
	}
	return &gateway.Result{Content: res.Content, Notes: res.Notes}, nil
}

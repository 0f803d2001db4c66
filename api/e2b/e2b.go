// Package e2b is the edge that clients of E2B speak, unmodified: its control plane, and the way from a request to the
// sandbox that it is for. A sandbox is a container; this package translates and keeps nothing of its own.
//
// Clients know two addresses, which are the same here. The API has the routes of routes.go and an API key. Requests
// to a sandbox name it in headers, in a token or by a signature; see data.go. They have the token of the sandbox, or
// none where that is allowed. Port 49983 of a sandbox is its agent (package envd), port 49999 its code interpreter
// (package interpreter). Both are served here and not inside the container.
//
//	access       API keys, tokens and signatures
//	templates    builds of templates, which become images
//	connectrpc   the RPC protocol of the agent
//
// Fields that cannot be honored are refused by name; refuse.go has them all. Fields that are unknown are ignored, since
// clients gain some all the time.
package e2b

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"berth/api"
	"berth/api/e2b/access"
	"berth/api/e2b/envd"
	"berth/api/e2b/interpreter"
	"berth/api/e2b/templates"
	"berth/api/ports/address"
	"berth/code"
	"berth/events"
	"berth/proto"
	"berth/session"
	"berth/session/stats"
)

// A Config is what the edge serves. Sessions, Code, Images and Keys must be set.
type Config struct {
	Sessions *session.Sessions
	Code     *code.Runner
	Images   session.Images
	Keys     access.Keys
	Events   *events.Feed         // nil: streams do not end when a container is paused or stopped otherwise than here
	Stats    *stats.Store         // nil: nothing is measured
	Builds   *templates.Templates // nil: templates are not built; the caller closes it
	// The widest network that a container may have; "" is none.
	NetworkMax proto.NetworkMode
	PortsMax   proto.PortAccess // the widest access to ports that a sandbox may have; "" is proto.PortsSigned
	Apps       Apps             // which serve programs in sandboxes; nil: their ports are closed
	Domain     address.Domain   // of ports; the zero Domain: they are reached by headers alone
	Limits     proto.Limits     // of sandboxes, as far as they differ from session.DefaultLimits
	Sudo       bool             // sandboxes have sudo
	Log        *slog.Logger     // nil: slog.Default
}

// An Edge serves the control plane as routes, and sandboxes as applications.
type Edge struct {
	cfg     Config
	agent   *envd.Agent
	cells   *interpreter.Interpreter
	streams *streams
}

// New makes the edge.
func New(cfg Config) *Edge {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.NetworkMax = cmp.Or(cfg.NetworkMax, proto.NetworkNone)
	e := &Edge{cfg: cfg}
	e.agent = envd.New(envd.Config{Stats: cfg.Stats, Gone: e.gone, Begin: e.begin})
	e.cells = &interpreter.Interpreter{Code: cfg.Code, Gone: e.gone}
	e.streams = newStreams(streamsConfig{feed: cfg.Events, forget: e.agent.Forget, gone: e.goneID, ends: e.leaseEnd})
	return e
}

// Close ends what goes on between requests.
func (e *Edge) Close() error { return errors.Join(e.streams.Close(), e.agent.Close()) }

// session returns a container of the caller. Containers of other owners, and those that have ended, are not found.
func (e *Edge) session(c *call) (*session.Session, error) {
	s, err := e.cfg.Sessions.Get(c.owner, c.r.PathValue("id"))
	if code := proto.CodeOf(err); code == proto.NotFound || code == proto.Expired {
		return nil, proto.Errorf(proto.NotFound, "", c.asked, "sandbox %.80q was not found", c.asked)
	}
	return s, err
}

// use returns a container of the caller, in the state that it must have.
func (e *Edge) use(c *call, want state) (*session.Session, error) {
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	if now := stateOf(s.Info()); now != want {
		return nil, proto.Errorf(proto.Conflict, "", c.asked, "sandbox %.80q is %s", c.asked, now)
	}
	return s, nil
}

// gone reports whether a sandbox does not run any more.
func (e *Edge) gone(s *session.Session) bool {
	_, err := e.cfg.Sessions.Get(s.Owner(), s.ID())
	return err != nil || e.streams.isLeaving(s.ID()) || stateOf(s.Info()) != running
}

// goneID is gone for the ID of a container.
func (e *Edge) goneID(id string) bool {
	s := e.cfg.Sessions.Any(id)
	return s == nil || e.gone(s)
}

// leaseEnd returns when the lease of a container ends.
func (e *Edge) leaseEnd(id string) time.Time {
	if s := e.cfg.Sessions.Any(id); s != nil {
		return s.Info().ExpiresAt.Time
	}
	return time.Time{}
}

// withActor returns a context of a request to a sandbox that was sent on behalf of a key.
func withActor(ctx context.Context, s *session.Session, keyID string) context.Context {
	return proto.WithCaller(ctx, api.Caller{Owner: s.Owner(), KeyID: keyID})
}

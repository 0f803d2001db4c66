package session

import (
	"bytes"
	"context"
	"crypto/hmac"
	"strings"

	"berth/guest/wire"
	"berth/proto"
	"berth/session/loopback"
	"berth/tools/bridge/inside"
)

// Code in a session calls the tools of its user over a port of the loopback. Config.Tools decides which calls are
// allowed and who answers; the session knows which of its commands calls. A session without tools has no such port.

// ToolsPort is the port of the tools on the container's loopback. It never changes, since running commands have it in
// their environment.
const ToolsPort = 3129

// Variables of commands that may call tools.
const (
	toolsVariable = "BERTH_TOOLS"
	tokenVariable = "BERTH_TOOLS_TOKEN"
	toolsURL      = "http://127.0.0.1:3129"
)

// Tools decides what code in containers may call. bridge.Bridge implements it.
type Tools interface {
	// AllowList checks and normalises what a request asks for.
	AllowList(asked proto.CodeTools) (proto.CodeTools, error)
	// Service answers the calls of a container's code. It is made for each start of the container.
	Service(s *Session) loopback.Service
}

// grantTools returns the tools that a request asks for, normalised, or nil.
func (c Config) grantTools(asked proto.CodeTools) (*proto.CodeTools, error) {
	if asked.IsZero() { // whatever comes with an empty list
		return nil, nil
	}
	if c.Tools == nil {
		return nil, proto.Errorf(proto.Unsupported, "", "code_tools", "this daemon gives code no tools")
	}
	granted, err := c.Tools.AllowList(asked.Clone())
	return &granted, err
}

// CodeTools returns the tools that the session was granted, without secrets. The zero CodeTools allows nothing.
func (s *Session) CodeTools() proto.CodeTools {
	if t := s.record().shownTools(); t != nil {
		return *t
	}
	return proto.CodeTools{}
}

// ToolProvider returns the provider that answers the session's calls, with its secrets.
func (s *Session) ToolProvider() (proto.ToolProvider, error) {
	r := s.record()
	if r.Tools == nil || r.unsealErr != nil {
		return proto.ToolProvider{}, r.unsealErr
	}
	p := r.Tools.Clone().Provider
	p.Headers, p.Secret = r.toolSecrets.Headers, r.toolSecrets.Secret
	return p, nil
}

// offers reports whether code in a session with this record can call tools.
func (c Config) offers(rec record) bool { return c.Tools != nil && rec.hasTools() }

// toolService returns the service for tool calls of the session's present generation, or nil.
func (s *Session) toolService(rec record) loopback.Service {
	if s.core.cfg.offers(rec) {
		return s.core.cfg.Tools.Service(s)
	}
	return nil
}

// OpenTools lets code in the session call tools, even if the session was created without any. Commands that start
// from now on have the address in their environment, in this generation and later ones.
func (s *Session) OpenTools(ctx context.Context) error {
	release, err := s.use(ctx, 0)
	if err != nil {
		return err
	}
	defer release()
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !s.record().hasTools() {
		if err := s.changeAsync(func(r *record) { r.ToolsOpened = true }); err != nil {
			return err
		}
	}
	rec := s.record()
	if rec.State != proto.StateRunning { // stopped meanwhile; its next start does it
		return nil
	}
	return s.serveTools(ctx, rec)
}

// serveTools serves the tools port and unpacks the client modules into the container. Code without the modules can
// still send requests itself. So a container continues if there is no room for the modules, or the image has files in
// their place.
func (s *Session) serveTools(ctx context.Context, rec record) error {
	service := s.toolService(rec)
	if service == nil || s.ports.Served(ToolsPort) {
		return nil
	}
	err := s.Guest().Untar(ctx, proto.UserRoot, "/", bytes.NewReader(inside.Archive()), wire.UntarLimits{})
	if err != nil && ctx.Err() == nil {
		s.core.cfg.Log.Warn("a container has not got all modules for its tools", "container", s.id, "error", err)
	}
	return s.ports.Serve(ctx, s.guestListen(), ToolsPort, service)
}

// toolLists returns search paths for a command, with which it finds the modules.
func toolLists(env map[string]string) []string {
	if env[toolsVariable] == toolsURL {
		return inside.Lists
	}
	return nil
}

// addTools puts the address of the session's tools into a command's environment and overrides what is there.
func (e *Exec) addTools(env map[string]string) {
	env[toolsVariable], env[tokenVariable] = toolsURL, e.s.token(e.id)
}

// token identifies a command when it calls tools: its ID and a digest that only this daemon and later ones can make.
func (s *Session) token(exec string) string {
	return exec + "." + s.core.digests.Digest([]byte("tools\x00" + s.id + "\x00" + exec))[:32]
}

// ExecByToken returns the running command of this session that has the token, or nil.
func (s *Session) ExecByToken(token string) *Exec {
	id, _, _ := strings.Cut(token, ".")
	if !proto.ValidID(proto.ExecPrefix, id) || !hmac.Equal([]byte(token), []byte(s.token(id))) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.running { // including one without a number yet, which may call before its start is published
		if e.id == id {
			return e
		}
	}
	return nil
}

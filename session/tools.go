package session

import (
	"bytes"
	"context"
	"crypto/hmac"
	"strings"

	"berth/guest/wire"
	"berth/proto"
	"berth/tools/bridge/inside"
)

// This file has the way from code in a session to the tools of whoever uses it. Who may call what, and who answers,
// is the affair of Config.Tools; a session knows which of its commands is asking. One that has no tools has nothing
// of this.

// toolsPort is where tools are found on the container's loopback. It never changes, since what runs has it in its
// environment.
const toolsPort = 3129

// Variables of commands that may call tools.
const (
	toolsVariable = "BERTH_TOOLS"
	tokenVariable = "BERTH_TOOLS_TOKEN"
	toolsURL      = "http://127.0.0.1:3129"
)

// Tools decides what code in containers may call; bridge.Bridge is the one there is.
type Tools interface {
	// AllowList checks what a request asks for and brings it into its one form.
	AllowList(asked proto.CodeTools) (proto.CodeTools, error)
	// Service is what a container's code finds on its loopback. It is made for each start of the container.
	Service(s *Session) Service
}

// grantTools are the tools that a request asks for, in their one form, or nil.
func (c Config) grantTools(asked proto.CodeTools) (*proto.CodeTools, error) {
	if asked.IsZero() { // whatever stands beside an empty list
		return nil, nil
	}
	if c.Tools == nil {
		return nil, proto.Errorf(proto.Unsupported, "", "code_tools", "this daemon gives code no tools")
	}
	granted, err := c.Tools.AllowList(asked.Clone())
	return &granted, err
}

// toolSecrets is what of a provider of tools must not be in the ledger in clear.
type toolSecrets struct {
	Headers map[string]string `json:"headers,omitempty"`
	Secret  string            `json:"secret,omitempty"`
}

func (t toolSecrets) isZero() bool { return len(t.Headers) == 0 && t.Secret == "" }

// words are what is hidden of it in texts.
func (t toolSecrets) words() map[string]string {
	if t.isZero() {
		return nil
	}
	list := map[string]string{"": t.Secret}
	for name, value := range t.Headers {
		_, bare, _ := strings.Cut(value, " ") // "Bearer …"
		list[name], list[name+" "] = value, bare
	}
	return list
}

// CodeTools is what the session was granted, without what is secret. The zero CodeTools allows nothing.
func (s *Session) CodeTools() proto.CodeTools {
	if t := s.record().shownTools(); t != nil {
		return *t
	}
	return proto.CodeTools{}
}

// ToolProvider is who answers the session's calls, with what is secret.
func (s *Session) ToolProvider() (proto.ToolProvider, error) {
	r := s.record()
	if r.Tools == nil || r.unsealErr != nil {
		return proto.ToolProvider{}, r.unsealErr
	}
	p := r.Tools.Clone().Provider
	p.Headers, p.Secret = r.toolSecrets.Headers, r.toolSecrets.Secret
	return p, nil
}

// offers reports whether code in a session of this record finds tools.
func (c Config) offers(rec record) bool { return c.Tools != nil && rec.hasTools() }

// toolService is what the session's present generation has on its loopback for code that calls tools, or nil.
func (s *Session) toolService(rec record) Service {
	if s.core.cfg.offers(rec) {
		return s.core.cfg.Tools.Service(s)
	}
	return nil
}

// OpenTools makes sure that code in the session can ask for tools, also where it was granted none when it was made.
// What begins from now on has the way in its environment, in this generation and in later ones.
func (s *Session) OpenTools(ctx context.Context) error {
	release, err := s.use(ctx)
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
	if rec.State != proto.StateRunning { // stopped meanwhile: its next start does it
		return nil
	}
	return s.serveTools(ctx, rec)
}

// serveTools is lay for tools, with what code calls them by. Code that finds no modules in its container can still ask
// by itself, so where there is no room for them, or the image has something in their place, it goes on.
func (s *Session) serveTools(ctx context.Context, rec record) error {
	service := s.toolService(rec)
	if service == nil || s.portServed(toolsPort) {
		return nil
	}
	err := s.client().Untar(ctx, proto.UserRoot, "/", bytes.NewReader(inside.Archive()), wire.UntarLimits{})
	if err != nil && ctx.Err() == nil {
		s.core.cfg.Log.Warn("a container has not got all modules for its tools", "container", s.id, "error", err)
	}
	return s.servePort(ctx, toolsPort, service)
}

// toolLists are what is added to a command's lists of directories, so that it finds these modules.
func toolLists(env map[string]string) []string {
	if env[toolsVariable] == toolsURL {
		return inside.Lists
	}
	return nil
}

// addTools puts the way to the session's tools into a command's environment, over whatever stands there.
func (e *Exec) addTools(env map[string]string) {
	env[toolsVariable], env[tokenVariable] = toolsURL, e.s.token(e.id)
}

// token is what a command is known by when it asks for tools: its ID, and what only this daemon and the one after it
// can make of that.
func (s *Session) token(exec string) string {
	return exec + "." + s.core.digest([]byte("tools\x00" + s.id + "\x00" + exec))[:32]
}

// ExecByToken is the command that a token was given to, if it is one of this session's and still runs.
func (s *Session) ExecByToken(token string) *Exec {
	id, _, _ := strings.Cut(token, ".")
	if !proto.ValidID(proto.ExecPrefix, id) || !hmac.Equal([]byte(token), []byte(s.token(id))) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.running { // also one that has no number yet: it may be faster than whoever started it
		if e.id == id {
			return e
		}
	}
	return nil
}

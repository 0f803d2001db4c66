package bridge

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"berth/proto"

	"golang.org/x/net/http/httpguts"
)

// Bounds of what a container may be given.
const (
	MaxTools       = 128       // tools that a container's code may call, and that one provider session has
	maxName        = 128       // bytes
	maxDescription = 16 << 10  // bytes
	maxCalls       = 100_000   // of one command
	maxSeconds     = 3600      // of one call
	maxHeaders     = 32        //
	maxHeaderBytes = 8 << 10   // of all headers together
	maxURL         = 2048      // bytes
	minSecret      = 16        // bytes
	maxSpecs       = 512 << 10 // of all schemas and descriptions together, bytes
)

// Defaults for what a request leaves out.
const (
	defaultCalls   = 1000
	defaultSeconds = 60
)

func invalid(item, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", item, format, args...)
}

// checkName checks the name of a tool. A name has one spelling.
func checkName(at, name string) error {
	switch {
	case name == proto.ReservedTool:
		return invalid(at, "%s: %q is how code finds all tools, so no tool can have that name; choose another", at,
			name)
	case !validName(name):
		return invalid(
			at, "%s: %.80q is not a valid tool name; use 1 to %d letters, digits, '_', '-' and '.', beginning "+
				"with a letter, a digit or '_'", at, name, maxName)
	}
	return nil
}

func validName(name string) bool {
	for i, c := range []byte(name) {
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_'
		if !alnum && (i == 0 || c != '-' && c != '.') {
			return false
		}
	}
	return name != "" && len(name) <= maxName
}

func checkApproval(at, approval string) error {
	switch approval {
	case "", proto.ApprovalAllow, proto.ApprovalReview:
		return nil
	}
	return invalid(at, "%s: %.40q is not known; use %q or %q", at, approval, proto.ApprovalAllow, proto.ApprovalReview)
}

// AllowList checks what a request asks for and normalizes it.
func (b *Bridge) AllowList(asked proto.CodeTools) (proto.CodeTools, error) {
	asked.MaxCalls, asked.TimeoutSeconds = cmp.Or(asked.MaxCalls, defaultCalls), cmp.Or(asked.TimeoutSeconds,
		defaultSeconds)
	asked.Provider.Type = cmp.Or(asked.Provider.Type, proto.ProviderClient)
	if err := checkAllow(asked.Allow); err != nil {
		return asked, err
	}
	switch {
	case asked.MaxCalls < 1 || asked.MaxCalls > maxCalls:
		return asked, invalid("code_tools.max_calls", "code_tools.max_calls must be from 1 to %d", maxCalls)
	case !(asked.TimeoutSeconds > 0 && asked.TimeoutSeconds <= maxSeconds):
		return asked, invalid("code_tools.timeout_seconds", "code_tools.timeout_seconds must be above 0 and at most %d",
			maxSeconds)
	}
	return asked, b.checkProvider(asked.Provider)
}

func checkAllow(list []proto.AllowedTool) error {
	if len(list) > MaxTools {
		return invalid("code_tools.allow", "%d tools are too many; %d is the limit", len(list), MaxTools)
	}
	seen := map[string]bool{}
	for i, t := range list {
		at := fmt.Sprintf("code_tools.allow.%d", i)
		if err := checkName(at, t.Name); err != nil {
			return err
		}
		if err := checkApproval(at+".approval", t.Approval); err != nil {
			return err
		}
		if seen[t.Name] {
			return invalid(at, "%s: the tool %s is there already; leave one of them out", at, t.Name)
		}
		seen[t.Name] = true
		list[i].Approval = cmp.Or(t.Approval, proto.ApprovalAllow)
	}
	return nil
}

// checkProvider checks the provider that a request names.
func (b *Bridge) checkProvider(p proto.ToolProvider) error {
	const at = "code_tools.provider"
	switch p.Type {
	case proto.ProviderClient:
		if p.URL != "" || len(p.Headers) > 0 || p.Secret != "" || len(p.Tools) > 0 {
			return invalid(at, "%s: one of type %q has nothing beside its type; the client says what it serves when "+
				"it connects", at, p.Type)
		}
		return nil
	case proto.ProviderHTTP, proto.ProviderMCP:
	default:
		return invalid(at+".type", "%s.type: %.40q is not known; use %q, %q or %q", at, p.Type, proto.ProviderClient,
			proto.ProviderHTTP, proto.ProviderMCP)
	}
	if err := b.checkURL(at+".url", p.URL); err != nil {
		return err
	}
	if err := checkHeaders(at+".headers", p.Headers); err != nil {
		return err
	}
	if p.Type == proto.ProviderMCP {
		if p.Secret != "" || len(p.Tools) > 0 {
			return invalid(at, "%s: one of type %q has no secret and no tools; the server lists its tools itself, "+
				"and headers can have its credentials", at, p.Type)
		}
		return nil
	}
	if len(p.Secret) < minSecret || len(p.Secret) > maxHeaderBytes {
		return invalid(at+".secret", "%s.secret must have %d to %d bytes: requests are signed with it, so that the "+
			"server knows whom they are from", at, minSecret, maxHeaderBytes)
	}
	return checkSpecs(at+".tools", p.Tools)
}

// checkURL checks the target of calls and whether the daemon's operator allows it. The address is checked again at
// each dial.
func (b *Bridge) checkURL(at, text string) error {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.Fragment != "" || u.Opaque != "" {
		return invalid(at, "%s must be an http or https URL of a server, without a user, a password or a fragment", at)
	}
	if b.cfg.Reach == nil {
		return proto.Errorf(proto.PermissionDenied, "", at, "%s: this daemon sends calls of tools to no server; its "+
			"operator can allow some with --tools-callback", at)
	}
	if err := b.cfg.Reach(hostPort(u)); err != nil {
		return proto.Errorf(proto.CodeOf(err), "", at, "%s: %s", at, proto.AsError(err).Message)
	}
	return nil
}

// hostPort is the host and port of a URL.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "https" {
		return u.Host + ":443"
	}
	return u.Host + ":80"
}

// ours are headers that only the daemon sets on a request.
var ours = map[string]bool{"Host": true, "Content-Length": true, "Content-Type": true, "Transfer-Encoding": true,
	"Connection": true, "Accept-Encoding": true,
	"Upgrade": true, "Te": true, "Trailer": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Expect": true}

func checkHeaders(at string, headers map[string]string) error {
	size := 0
	for name, value := range headers {
		canonical := http.CanonicalHeaderKey(name)
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || ours[canonical] ||
			strings.HasPrefix(canonical, "Berth-") {
			return invalid(at, "%s: %.80q cannot be set, or its value is not one that a header can have", at, name)
		}
		size += len(name) + len(value)
	}
	if len(headers) > maxHeaders || size > maxHeaderBytes {
		return invalid(at, "%s: %d headers of %d bytes are too many; %d of %d bytes together are the limit", at,
			len(headers), size, maxHeaders, maxHeaderBytes)
	}
	return nil
}

// checkSpecs checks the tools of a server that does not list them itself.
func checkSpecs(at string, specs []proto.ToolSpec) error {
	if len(specs) == 0 {
		return invalid(at, "%s: list the tools that the server answers, each with its name and input_schema", at)
	}
	size, list := 0, make([]Tool, len(specs))
	for i, s := range specs {
		size += len(s.Description) + len(s.InputSchema) + len(s.OutputSchema)
		list[i] = toolOf(s)
	}
	if size > maxSpecs {
		return proto.Errorf(proto.TooLarge, "", at, "%s: descriptions and schemas have %d bytes; %d is the limit", at,
			size, maxSpecs)
	}
	_, err := prepareAll(at, list)
	return err
}

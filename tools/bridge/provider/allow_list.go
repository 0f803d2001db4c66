package provider

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"berth/proto"

	"golang.org/x/net/http/httpguts"
)

// Bounds of what a container may be given.
const (
	MaxTools       = 128      // tools that a container's code may call, and that one provider session has
	MaxCalls       = 100_000  // of one command
	maxDescription = 16 << 10 // bytes
	maxSeconds     = 3600     // of one call
	maxHeaders     = 32
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

// AllowList checks what a request asks for and normalizes it. reach reports whether the operator allows calls to a
// host and port; nil: calls go to no server.
func AllowList(asked proto.CodeTools, reach func(hostPort string) error) (proto.CodeTools, error) {
	asked.MaxCalls, asked.TimeoutSeconds = cmp.Or(asked.MaxCalls, defaultCalls), cmp.Or(asked.TimeoutSeconds,
		defaultSeconds)
	asked.Provider.Type = cmp.Or(asked.Provider.Type, proto.ProviderClient)
	if err := checkAllow(asked.Allow); err != nil {
		return asked, err
	}
	switch {
	case asked.MaxCalls < 1 || asked.MaxCalls > MaxCalls:
		return asked, proto.Invalid("code_tools.max_calls", "code_tools.max_calls must be from 1 to %d", MaxCalls)
	case !(asked.TimeoutSeconds > 0 && asked.TimeoutSeconds <= maxSeconds):
		return asked, proto.Invalid("code_tools.timeout_seconds",
			"code_tools.timeout_seconds must be above 0 and at most %d",
			maxSeconds)
	}
	return asked, checkProvider(asked.Provider, reach)
}

func checkAllow(list []proto.AllowedTool) error {
	if len(list) > MaxTools {
		return proto.Invalid("code_tools.allow", "%d tools are too many; %d is the limit", len(list), MaxTools)
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
			return proto.Invalid(at, "%s: the tool %s is there already; leave one of them out", at, t.Name)
		}
		seen[t.Name] = true
		list[i].Approval = cmp.Or(t.Approval, proto.ApprovalAllow)
	}
	return nil
}

// checkProvider checks the provider that a request names.
func checkProvider(p proto.ToolProvider, reach func(hostPort string) error) error {
	const at = "code_tools.provider"
	switch p.Type {
	case proto.ProviderClient:
		if p.URL != "" || len(p.Headers) > 0 || p.Secret != "" || len(p.Tools) > 0 {
			return proto.Invalid(at, "%s: type %q allows no other fields; the client lists its tools when it "+
				"connects", at, p.Type)
		}
		return nil
	case proto.ProviderHTTP, proto.ProviderMCP:
	default:
		return proto.Invalid(at+".type", "%s.type: %.40q is not known; use %q, %q or %q", at, p.Type,
			proto.ProviderClient,
			proto.ProviderHTTP, proto.ProviderMCP)
	}
	if err := checkURL(at+".url", p.URL, reach); err != nil {
		return err
	}
	if err := checkHeaders(at+".headers", p.Headers); err != nil {
		return err
	}
	if p.Type == proto.ProviderMCP {
		if p.Secret != "" || len(p.Tools) > 0 {
			return proto.Invalid(at, "%s: type %q allows no secret and no tools; the server lists its tools itself, "+
				"and headers can carry its credentials", at, p.Type)
		}
		return nil
	}
	if len(p.Secret) < minSecret || len(p.Secret) > maxHeaderBytes {
		return proto.Invalid(at+".secret",
			"%s.secret must have %d to %d bytes: requests are signed with it, so that the "+
				"server knows their sender", at, minSecret, maxHeaderBytes)
	}
	return checkSpecs(at+".tools", p.Tools)
}

// checkURL checks the target of calls and whether the daemon's operator allows it. The address is checked again at
// each dial.
func checkURL(at, text string, reach func(hostPort string) error) error {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.Fragment != "" || u.Opaque != "" {
		return proto.Invalid(
			at, "%s must be an http or https URL of a server, without a user, a password or a fragment", at)
	}
	if reach == nil {
		return proto.Errorf(proto.PermissionDenied, "", at, "%s: this daemon sends calls of tools to no server; its "+
			"operator can allow some with --tools-callback", at)
	}
	hostPort := u.Host
	if u.Port() == "" {
		hostPort += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	if err := reach(hostPort); err != nil {
		return proto.Errorf(proto.CodeOf(err), "", at, "%s: %s", at, proto.AsError(err).Message)
	}
	return nil
}

// reservedHeaders are headers that only the daemon sets on a request.
var reservedHeaders = []string{"Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection",
	"Accept-Encoding", "Upgrade", "Te", "Trailer", "Proxy-Authorization", "Proxy-Connection", "Expect"}

func checkHeaders(at string, headers map[string]string) error {
	size := 0
	for name, value := range headers {
		canonical := http.CanonicalHeaderKey(name)
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) ||
			slices.Contains(reservedHeaders, canonical) ||
			strings.HasPrefix(canonical, "Berth-") {
			return proto.Invalid(at, "%s: %.80q cannot be set, or its value is not one that a header can have", at,
				name)
		}
		size += len(name) + len(value)
	}
	if len(headers) > maxHeaders || size > maxHeaderBytes {
		return proto.Invalid(at, "%s: %d headers of %d bytes are too many; %d of %d bytes together are the limit", at,
			len(headers), size, maxHeaders, maxHeaderBytes)
	}
	return nil
}

// checkSpecs checks the tools of a server that does not list them itself.
func checkSpecs(at string, specs []proto.ToolSpec) error {
	if len(specs) == 0 {
		return proto.Invalid(at, "%s: list the tools that the server answers, each with its name and input_schema", at)
	}
	size := 0
	for _, s := range specs {
		size += len(s.Description) + len(s.InputSchema) + len(s.OutputSchema)
	}
	if size > maxSpecs {
		return proto.Errorf(proto.TooLarge, "", at, "%s: descriptions and schemas have %d bytes; %d is the limit", at,
			size, maxSpecs)
	}
	_, err := PrepareSpecs(at, specs)
	return err
}

package e2b

import (
	"encoding/json"
	"io"
	"net/netip"
	"slices"
	"strings"

	"berth/api"
	"berth/proto"
)

// A refusal is a field of a request for a sandbox that cannot be honored.
type refusal struct {
	field string
	asked func(newSandbox) bool
	why   string
}

// refusals are all of them. What is not enforced is never accepted in silence.
var refusals = []refusal{
	{"mcp", func(n newSandbox) bool { return given(n.MCP) },
		"sandboxes have no MCP gateway; this server is an MCP server itself, at /mcp"},
	{"iam", func(n newSandbox) bool { return given(n.IAM) }, "sandboxes have no identity tokens"},
	{"volumeMounts", func(n newSandbox) bool { return len(n.Mounts) > 0 },
		"there are no volumes; keep files in a snapshot"},
	{"autoPauseMemory", func(n newSandbox) bool { return n.PauseMemory != nil && !*n.PauseMemory && !n.AutoPause },
		"autoPauseMemory=false only applies when autoPause is true."},
	{"autoPauseMemory", func(n newSandbox) bool {
		return n.PauseMemory != nil && !*n.PauseMemory && n.AutoResume != nil && n.AutoResume.Enabled
	}, "autoPauseMemory=false cannot be combined with autoResume."},
	{"metadata", func(n newSandbox) bool { _, ok := n.Metadata[settingsLabel]; return ok },
		"the key " + settingsLabel + " is reserved"},
	{"network.rules", ofNetwork(func(n network) bool { return given(n.Rules) }),
		"requests are not changed by rules; create the container over the native API, with network_secrets"},
	{"network.egressProxy", ofNetwork(func(n network) bool { return given(n.EgressProxy) }),
		"traffic cannot go through another proxy"},
	{"network.dnsServers", ofNetwork(func(n network) bool { return len(n.DNSServers) > 0 }),
		"name servers cannot be chosen"},
	{"network.maskRequestHost", ofNetwork(func(n network) bool { return n.MaskHost != "" }),
		"the host of requests to ports cannot be replaced"},
	{"network.httpsPorts", ofNetwork(func(n network) bool { return len(n.HTTPSPorts) > 0 }),
		"requests to ports are always plain HTTP inside"},
	{"network.allowOut", ofNetwork(func(n network) bool { return slices.ContainsFunc(n.AllowOut, isAddress) }),
		"addresses and ranges cannot be allowed; allow domains"},
	{"network.denyOut", ofNetwork(func(n network) bool {
		return slices.ContainsFunc(n.DenyOut, func(d string) bool { return d != everything })
	}), "single addresses and ranges cannot be denied; deny 0.0.0.0/0 and allow domains"},
}

// refuseFields refuses a request with a field that cannot be honored.
func refuseFields(ask newSandbox) error {
	for _, r := range refusals {
		if r.asked(ask) {
			return proto.Invalid(r.field, "%s: %s", r.field, r.why)
		}
	}
	return nil
}

// ofNetwork makes a check of a network one of a request.
func ofNetwork(asked func(network) bool) func(newSandbox) bool {
	return func(n newSandbox) bool { return n.Network != nil && asked(*n.Network) }
}

// given reports whether a field has a value that asks for something.
func given(raw json.RawMessage) bool {
	text := strings.Join(strings.Fields(string(raw)), "")
	return text != "" && text != "null" && text != "{}" && text != "[]"
}

// isAddress reports whether a host is an address or a range of them.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	_, notRange := netip.ParsePrefix(host)
	return err == nil || notRange == nil
}

// An absence is a group of routes that is not offered at all.
type absence struct {
	methods  string
	patterns []string
	why      string
}

// absences are all of them. Clients show the message.
var absences = []absence{
	{"POST", []string{"/templates", "/templates/{template}", "/templates/{template}/builds/{build}"}, noPush},
	{"PATCH", []string{"/templates/{template}", "/v2/templates/{template}"}, "a template is an image, which every " +
		"owner of this daemon may use; that cannot be changed"},
	{"GET POST DELETE", []string{"/volumes", "/volumes/{rest...}"}, noVolumes},
	{"GET POST PUT PATCH DELETE", []string{"/volumecontent/{rest...}"}, noVolumes},
	{"GET POST PUT DELETE", []string{"/secrets", "/secrets/{rest...}"}, "there is no store of secrets for sandboxes; " +
		"give a container its secrets over the native API, as secrets or network_secrets"},
	{"GET", []string{"/teams", "/teams/{rest...}", "/nodes", "/nodes/{rest...}"}, "there are no teams and nodes " +
		"here; berth keys has the API keys"},
}

const (
	noPush = "templates are not built from images that a client pushes; use the Template builder of an SDK, or berth " +
		"image build -f Dockerfile"
	noVolumes = "there are no volumes; keep files in a snapshot, or in /workspace"
)

// absent returns the routes of what is not offered.
func absent() (list []api.Route) {
	for _, a := range absences {
		refuse := serve(func(c *call) (any, error) {
			if _, err := io.Copy(io.Discard, c.r.Body); err != nil {
				return nil, err
			}
			return nil, proto.Errorf(proto.Unsupported, "", "", "%s", a.why)
		})
		for method := range strings.FieldsSeq(a.methods) {
			for _, pattern := range a.patterns {
				list = append(list, api.Route{Method: method, Pattern: pattern, Where: placeOf(pattern), Handle: refuse,
					MaxBodyBytes: maxRefusedBody, Act: "e2b.refuse"})
			}
		}
	}
	return list
}

// maxRefusedBody bounds the body of a request to a route that is always refused.
const maxRefusedBody = 16 << 20

// placeOf returns where the container of a route stands.
func placeOf(pattern string) api.Place {
	if strings.HasPrefix(pattern, sandboxes+"/{id}") || strings.HasPrefix(pattern, "/v2"+sandboxes+"/{id}") {
		return api.InPath
	}
	return api.None
}

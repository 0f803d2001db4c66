package e2b

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/api/e2b/templates"
	"berth/proto"
)

const (
	// longestLease is how long a sandbox may run without another request for its lease, as in the hosted service.
	longestLease = 24 * time.Hour
	// lifetime is how long a sandbox may exist, paused times included: the longest that the core gives.
	lifetime = 365 * 24 * time.Hour
)

// Seconds that a lease has if a request names none, in the two versions of the routes.
const (
	shortLease = 15
	usualLease = 300
)

// A newSandbox asks for a sandbox.
type newSandbox struct {
	TemplateID     string            `json:"templateID"`
	Timeout        *int64            `json:"timeout"`
	Metadata       map[string]string `json:"metadata"`
	EnvVars        map[string]string `json:"envVars"`
	Secure         bool              `json:"secure"`
	InternetAccess *bool             `json:"allow_internet_access"`
	AutoPause      bool              `json:"autoPause"`
	PauseMemory    *bool             `json:"autoPauseMemory"`
	AutoResume     *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network *network        `json:"network"`
	MCP     json.RawMessage `json:"mcp"`
	IAM     json.RawMessage `json:"iam"`
	Mounts  []any           `json:"volumeMounts"`
}

// everything is the range that clients deny to allow nothing but what they list.
const everything = "0.0.0.0/0"

// A network is what a sandbox may reach, and who may reach it.
type network struct {
	AllowOut     []string        `json:"allowOut,omitempty"`
	DenyOut      []string        `json:"denyOut,omitempty"`
	DNSServers   []string        `json:"dnsServers,omitempty"`
	Rules        json.RawMessage `json:"rules,omitempty"`
	EgressProxy  json.RawMessage `json:"egressProxy,omitempty"`
	PublicAccess *bool           `json:"allowPublicTraffic,omitempty"`
	MaskHost     string          `json:"maskRequestHost,omitempty"`
	HTTPSPorts   []int           `json:"httpsPorts,omitempty"`
}

// createSandbox makes a sandbox. In the second version of the route a sandbox is always secured, and lives longer
// without a timeout.
func (e *Edge) createSandbox(second bool) handler {
	return func(c *call) (any, error) {
		var ask newSandbox
		if err := c.read(&ask); err != nil {
			return nil, err
		}
		if second {
			ask.Secure = true
		}
		def := int64(shortLease)
		if second {
			def = usualLease
		}
		req, facts, err := e.request(c, ask, def)
		if err != nil {
			return nil, err
		}
		s, replayed, err := e.cfg.Sessions.CreateOnce(c.r.Context(), c.owner, req)
		if proto.CodeOf(err) == proto.Conflict && req.IdempotencyKey != "" {
			return nil, coded{"idempotency_request_mismatch", err}
		}
		if err == nil && !replayed {
			err = e.start(c.r.Context(), s, facts)
		}
		if err != nil {
			return nil, err
		}
		c.status = http.StatusCreated
		return e.describe(c, s), nil
	}
}

// request translates a request for a sandbox, and returns what its template says of itself. def is its timeout in
// seconds if it names none.
func (e *Edge) request(c *call, ask newSandbox, def int64) (req proto.CreateContainer, facts templates.Facts,
	err error) {
	if err := refuseFields(ask); err != nil {
		return req, facts, err
	}
	seconds, err := leaseSeconds(ask.Timeout, def)
	if err != nil {
		return req, facts, err
	}
	seconds = max(seconds, 1) // a new container cannot end at once
	set := settings{template: ask.TemplateID, keyID: c.keyID, open: !ask.Secure, atEnd: atEnd(ask),
		autoResume: ask.AutoResume != nil && ask.AutoResume.Enabled}
	set.private = isPrivate(ask)
	open, err := e.publicPorts(ask)
	if err != nil {
		return req, facts, err
	}
	if e.cfg.Apps == nil {
		open = proto.PublicPorts{}
	}
	req = proto.CreateContainer{PublicPorts: open, Env: ask.EnvVars, Labels: maps.Clone(ask.Metadata),
		MaxLifetimeSeconds: int64(lifetime / time.Second), IdempotencyKey: c.r.Header.Get("Idempotency-Key"),
		Lease: proto.LeaseRequest{Mode: proto.LeaseAbsolute, AtEnd: set.atEnd, EndsInSeconds: &seconds}}
	if req.Labels == nil {
		req.Labels = map[string]string{}
	}
	req.Labels[settingsLabel] = set.label()
	of, err := e.template(c.r.Context(), c.owner, ask.TemplateID)
	if err != nil {
		return req, facts, err
	}
	snap := of.snapshot
	req.Image, req.Snapshot = of.ref, snap.ID
	if snap.ID == "" {
		facts = templates.FactsOf(of.image)
		req.Limits = e.limits(facts)
	}
	// Only containers of class runc have sudo, and a sandbox has the class of its snapshot.
	req.Sudo = e.cfg.Sudo && (snap.ID == "" || snap.RuntimeClass == proto.ClassRunc)
	req.Network = e.network(ask)
	return req, facts, nil
}

// atEnd returns what happens at the end of the lease. A sandbox whose memory is not kept is stopped: its files stay.
func atEnd(ask newSandbox) proto.LeaseAction {
	switch {
	case !ask.AutoPause:
		return proto.LeaseRemove
	case ask.PauseMemory != nil && !*ask.PauseMemory:
		return proto.LeaseStop
	}
	return proto.LeasePause
}

// network returns what the container may reach. Clients that say nothing expect the internet, and get what the daemon
// may give.
func (e *Edge) network(ask newSandbox) proto.Network {
	switch {
	case ask.InternetAccess != nil && !*ask.InternetAccess:
		return proto.Network{Mode: proto.NetworkNone}
	case ask.Network != nil && len(ask.Network.AllowOut) > 0:
		return proto.Network{Mode: proto.NetworkAllowlist, Allow: ask.Network.AllowOut}
	case ask.Network != nil && slices.Contains(ask.Network.DenyOut, everything) ||
		e.cfg.NetworkMax != proto.NetworkOpen:
		return proto.Network{Mode: proto.NetworkNone}
	}
	return proto.Network{Mode: proto.NetworkOpen}
}

// leaseSeconds checks a timeout.
func leaseSeconds(asked *int64, def int64) (int64, error) {
	if asked == nil {
		return def, nil
	}
	if *asked > int64(longestLease/time.Second) {
		return 0, proto.Invalid("timeout", "Timeout cannot be greater than %d hours", int(longestLease/time.Hour))
	}
	return max(*asked, 0), nil
}

// images are those that clients know by other names, the best first.
var images = map[string][]string{"code-interpreter-v1": {"full", "base"}, "code-interpreter": {"full", "base"}}

// TemplateAliases are the names that templates may be built on without being images here.
func TemplateAliases() map[string][]string {
	all := maps.Clone(images)
	all["e2bdev/base"], all["e2bdev/code-interpreter"] = []string{"base"}, images["code-interpreter"]
	return all
}

// ReservedTemplates are the names that no template may have: those of the daemon's own images, and those that stand for
// them.
func ReservedTemplates() []string {
	return append(slices.Collect(maps.Keys(TemplateAliases())), "base", "full", "dev")
}

// A found template is an image or a snapshot.
type found struct {
	ref      string // name of the image; "" for a snapshot
	image    proto.Image
	snapshot proto.Snapshot
}

// template returns the image or the snapshot that a request names.
func (e *Edge) template(ctx context.Context, owner, name string) (f found, err error) {
	if name == "" {
		return f, proto.Invalid("templateID", "templateID must name an image or a snapshot, such as base")
	}
	if proto.ValidID(proto.SnapshotPrefix, name) {
		f.snapshot, err = e.cfg.Sessions.Snapshots().Get(owner, name)
		return f, err
	}
	if e.cfg.Builds != nil {
		if img, ok, err := e.cfg.Builds.Find(ctx, name); ok {
			return found{ref: img.Name, image: img}, err
		}
	}
	plain := strings.TrimSuffix(name, ":default")
	for _, ref := range append(slices.Clone(images[plain]), plain) {
		img, err := e.cfg.Images.Resolve(ctx, ref)
		if err == nil {
			return found{ref: ref, image: img}, nil
		}
		if code := proto.CodeOf(err); code != proto.NotFound && code != proto.InvalidArgument {
			return f, err
		}
	}
	if f.snapshot, err = e.cfg.Sessions.Snapshots().Get(owner, plain); err == nil {
		return f, nil
	}
	return found{}, proto.Errorf(proto.NotFound, "", name, "template %.80q was not found; templates are images here: "+
		"build one with the SDK or with berth image build, or import one with berth image import", name)
}

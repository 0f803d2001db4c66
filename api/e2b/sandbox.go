package e2b

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"berth/api/e2b/access"
	"berth/api/e2b/usage"
	"berth/proto"
	"berth/session"
)

const (
	// clientID is what clients want in each answer and use no more.
	clientID = "berth"
	// envdVersion tells clients what the agent has: up to entries in watches, and watches of network mounts, of which
	// there are none.
	envdVersion = "0.6.4"
	// mib is what clients count memory and disks in, in bytes.
	mib = 1 << 20
)

// A state is what clients know of the state of a container.
type state string

const (
	running state = "running"
	paused  state = "paused"
)

// stateOf returns the state for clients. The daemon stops an idle container without processes, and its next use starts
// it: until its lease ends, clients need not know. Otherwise a stopped container is paused without its processes.
func stateOf(c proto.Container) state {
	absolute := c.Lease.Mode == proto.LeaseAbsolute
	over := absolute && !time.Now().Before(c.Lease.EndsAt.Time) // and what its lease brings is about to happen
	switch c.State {
	case proto.StateRunning, proto.StateCreating:
		if !over {
			return running
		}
	case proto.StateStopped:
		if absolute && !over {
			return running
		}
	}
	return paused
}

// settingsLabel is the label of a container that has what this edge must remember of it. It is not shown as metadata.
const settingsLabel = "berth.e2b"

// settings are what a sandbox was created with and its container does not know. The zero settings are those of a
// container that another edge made.
type settings struct {
	template   string            // as the request named it
	atEnd      proto.LeaseAction // of each of its leases; "" is that of the present one
	keyID      string            // that created it
	open       bool              // the agent needs no token
	autoResume bool              // requests to ports wake it
	private    bool              // requests to ports need the traffic token
}

// label spells the settings as the value of a label.
func (s settings) label() string {
	v := url.Values{"template": {s.template}, "key": {s.keyID}, "at_end": {string(s.atEnd)}}
	for name, set := range map[string]bool{"open": s.open, "auto_resume": s.autoResume, "private": s.private} {
		if set {
			v.Set(name, "true")
		}
	}
	return v.Encode()
}

// settingsOf reads the settings of a container.
func settingsOf(c proto.Container) (s settings) {
	v, _ := url.ParseQuery(c.Labels[settingsLabel]) // the owner may have changed it: what is missing is not set
	s = settings{template: cmp.Or(v.Get("template"), c.Image), keyID: v.Get("key"), open: v.Get("open") == "true",
		autoResume: v.Get("auto_resume") == "true", private: v.Get("private") == "true"}
	switch at := proto.LeaseAction(v.Get("at_end")); at {
	case proto.LeaseRemove, proto.LeasePause, proto.LeaseStop:
		s.atEnd = at
	}
	return s
}

// made reports whether this edge made the container.
func (s settings) made() bool { return s.keyID != "" }

// A sandboxInfo is the answer to a create, connect or resume.
type sandboxInfo struct {
	TemplateID  string  `json:"templateID"`
	SandboxID   string  `json:"sandboxID"`
	ClientID    string  `json:"clientID"`
	EnvdVersion string  `json:"envdVersion"`
	Alias       string  `json:"alias,omitempty"`
	Token       string  `json:"envdAccessToken,omitempty"`
	Traffic     *string `json:"trafficAccessToken"`
	Domain      *string `json:"domain"`
}

// describe describes a container to the caller.
func (e *Edge) describe(c *call, s *session.Session) sandboxInfo {
	info := s.Info()
	set := settingsOf(info)
	out := sandboxInfo{TemplateID: set.template, SandboxID: proto.HostID(s.ID()), ClientID: clientID,
		EnvdVersion: envdVersion, Alias: aliasOf(set.template)}
	if !set.open {
		out.Token = access.Token(s, c.keyID)
	}
	out.Traffic, out.Domain = e.trafficToken(s), e.domain(c.r)
	return out
}

// aliasOf returns the template if it is a name, and not the ID of a snapshot.
func aliasOf(template string) string {
	if proto.ValidID(proto.SnapshotPrefix, template) {
		return ""
	}
	return template
}

// A listed is a container in a list.
type listed struct {
	TemplateID  string            `json:"templateID"`
	SandboxID   string            `json:"sandboxID"`
	ClientID    string            `json:"clientID"`
	Alias       string            `json:"alias,omitempty"`
	StartedAt   proto.Time        `json:"startedAt"`
	EndAt       proto.Time        `json:"endAt"`
	CPUCount    int64             `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	State       state             `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
}

func listedOf(info proto.Container) listed {
	set := settingsOf(info)
	return listed{TemplateID: set.template, SandboxID: proto.HostID(info.ID), ClientID: clientID,
		Alias: aliasOf(set.template), StartedAt: info.CreatedAt, EndAt: info.ExpiresAt,
		CPUCount: usage.Cores(info.Limits.CPUs), MemoryMB: info.Limits.MemoryBytes / mib,
		DiskSizeMB: info.Limits.DiskBytes / mib, State: stateOf(info),
		EnvdVersion: envdVersion, Metadata: metadataOf(info)}
}

func metadataOf(info proto.Container) map[string]string {
	out := map[string]string{}
	for k, v := range info.Labels {
		if k != settingsLabel {
			out[k] = v
		}
	}
	return out
}

// A detail describes one container.
type detail struct {
	listed
	Token          string    `json:"envdAccessToken,omitempty"`
	InternetAccess bool      `json:"allowInternetAccess"`
	Domain         *string   `json:"domain"`
	Network        *network  `json:"network,omitempty"`
	Lifecycle      lifecycle `json:"lifecycle"`
	PauseMode      string    `json:"pauseMode,omitempty"`
}

type lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

func (e *Edge) getSandbox(c *call) (any, error) {
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	info := s.Info()
	set := settingsOf(info)
	d := detail{listed: listedOf(info), Domain: e.domain(c.r), InternetAccess: info.Network.Mode == proto.NetworkOpen,
		Lifecycle: lifecycle{set.autoResume, "kill"}}
	if cmp.Or(set.atEnd, info.Lease.AtEnd) != proto.LeaseRemove {
		d.Lifecycle.OnTimeout = "pause"
	}
	if !set.open {
		d.Token = access.Token(s, c.keyID)
	}
	if info.Network.Mode == proto.NetworkAllowlist {
		d.Network = &network{AllowOut: info.Network.Allow, DenyOut: []string{everything}}
	}
	if set.private {
		if d.Network == nil {
			d.Network = &network{}
		}
		d.Network.PublicAccess = new(bool)
	}
	if d.State == paused {
		if d.PauseMode = "filesystem"; info.State == proto.StatePaused {
			d.PauseMode = "full"
		}
	}
	return d, nil
}

// parseTime reads a time that a client sent, as RFC 3339 has it.
func parseTime(field, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, strings.ReplaceAll(text, " ", "+")) // a plus in a query reads as a space
	if err != nil {
		return t, proto.Invalid(field, "%s must be a time of RFC 3339, such as 2026-01-02T15:04:05Z", field)
	}
	return t, nil
}

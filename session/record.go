package session

import (
	"slices"
	"time"

	"berth/egress"
	"berth/proto"
)

// Buckets of the ledger.
const (
	bucketSessions   = "sessions"
	bucketWorkspaces = "workspaces"
	bucketExecs      = "execs"
)

// A record is what the ledger knows of a session.
type record struct {
	ID             string                   `json:"id"`
	Owner          string                   `json:"owner"`
	Key            string                   `json:"key,omitempty"`  // API key it was made with
	Retry          retry                    `json:"retry,omitzero"` // the key that somebody may ask for it with again
	State          proto.State              `json:"state"`
	Generation     int64                    `json:"generation"`
	Image          string                   `json:"image"`
	Digest         string                   `json:"digest"`
	Class          proto.RuntimeClass       `json:"class"`
	Workspace      string                   `json:"workspace"`
	Job            string                   `json:"job"` // of execs that name none
	Labels         map[string]string        `json:"labels,omitempty"`
	Sealed         string                   `json:"sealed,omitempty"`       // Env and Secrets; see confidential
	Names          []string                 `json:"secret_names,omitempty"` // of Secrets
	ClearEnv       map[string]string        `json:"env,omitempty"`          // Env as older daemons wrote it
	Env            map[string]string        `json:"-"`
	Secrets        map[string]string        `json:"-"`
	NetworkSecrets map[string]egress.Secret `json:"-"` // that the proxy puts into requests
	// that its code may call, without what toolSecrets has; nil: none
	Tools       *proto.CodeTools `json:"tools,omitempty"`
	ToolsOpened bool             `json:"offered,omitempty"` // its code was given tools since; see OpenTools
	toolSecrets toolSecrets      // of Tools; sealed with the rest
	unsealErr   error            // why Sealed cannot be opened
	Limits      proto.Limits     `json:"limits"`
	Network     proto.Network    `json:"network,omitzero"`
	Mounts      []Mount          `json:"fixtures,omitempty"`
	Isolation   proto.Isolation  `json:"isolation,omitzero"` // as of the last start
	Host        string           `json:"host,omitempty"`     // boot of the host that it was made in
	Created     time.Time        `json:"created"`
	LastUsed    time.Time        `json:"last_used"` // as of the last write; memory is ahead of it
	Idle        time.Duration    `json:"idle"`      // rolling lease
	Lifetime    time.Duration    `json:"lifetime"`  // cap from Created
	// an explicit extension; counts while later than LastUsed+Idle
	Lease         time.Time `json:"lease,omitzero"`
	Ended         time.Time `json:"ended,omitzero"`     // when it expired
	Delete        bool      `json:"delete,omitempty"`   // removal has begun; finish it
	Keep          bool      `json:"keep,omitempty"`     // keep the workspace on removal
	Fleeting      bool      `json:"fleeting,omitempty"` // it ends with the daemon that made it
	InputsMissing bool      `json:"unfilled,omitempty"` // its inputs are not all there yet
}

// unusedFor reports whether nobody has used it for so long; d of 0 is never over.
func (r record) unusedFor(d time.Duration, now time.Time) bool {
	return d > 0 && !now.Before(r.LastUsed.Add(d))
}

// latest is the latest moment that the record knows to have been.
func (r record) latest() time.Time {
	t := r.LastUsed
	for _, u := range []time.Time{r.Created, r.Ended} {
		if u.After(t) {
			t = u
		}
	}
	return t
}

func (r record) spec() Spec {
	return Spec{Image: r.Digest, Class: r.Class, Workspace: r.Workspace, Limits: r.Limits.Or(DefaultLimits)}
}

// network is the record's as it is shown.
func (r record) network() proto.Network {
	n := r.Network
	setDefault(&n.Mode, proto.NetworkNone)
	n.Allow = slices.Clone(n.Allow)
	return n
}

// connected reports whether the session may reach anything.
func (r record) connected() bool { return r.Network.Mode.Covers(proto.NetworkAllowlist) }

// placeholders are what commands have in their environment.
func (r record) placeholders() map[string]string {
	return mapValues(r.NetworkSecrets, func(s egress.Secret) string { return s.Placeholder })
}

// networkSecretValues are what is to be hidden wherever it turns up nevertheless.
func (r record) networkSecretValues() map[string]string {
	return mapValues(r.NetworkSecrets, func(s egress.Secret) string { return s.Value })
}

// shownNetworkSecrets are the secrets without what is secret.
func (r record) shownNetworkSecrets() map[string]proto.NetworkSecret {
	return mapValues(r.NetworkSecrets, func(s egress.Secret) proto.NetworkSecret {
		return proto.NetworkSecret{
			Hosts: slices.Clone(s.Hosts)}
	})
}

// dropSecrets is for what will never run anything again.
func (r *record) dropSecrets() {
	r.Env, r.Secrets, r.NetworkSecrets, r.toolSecrets, r.Sealed, r.Names, r.ClearEnv, r.unsealErr = nil, nil, nil,
		toolSecrets{},
		"", nil, nil, nil
}

// hasTools reports whether code in the session may call anything, or may have been given something to call.
func (r record) hasTools() bool { return r.Tools != nil || r.ToolsOpened }

// shownTools is what the session was granted, without what is secret; nil for nothing.
func (r record) shownTools() *proto.CodeTools {
	if r.Tools == nil {
		return nil
	}
	granted := r.Tools.Clone()
	return &granted
}

// holdToolSecrets takes what is secret out of the record's tools, to be sealed with the rest.
func (r *record) holdToolSecrets() {
	if r.Tools != nil {
		r.toolSecrets = toolSecrets{r.Tools.Provider.Headers, r.Tools.Provider.Secret}
		r.Tools.Provider.Headers, r.Tools.Provider.Secret = nil, ""
	}
}

// A workspaceRecord is what the ledger knows of a workspace.
type workspaceRecord struct {
	ID      string    `json:"id"`
	Owner   string    `json:"owner"`
	Created time.Time `json:"created"`
	Session string    `json:"session"`       // that has it; "" for none
	Kept    bool      `json:"kept"`          // outlives its session
	Key     string    `json:"key,omitempty"` // API key that its first session was made with
	going   bool      // it is being removed, on request
}

// An execRecord is what the ledger knows of an exec.
type execRecord struct {
	Exec  proto.Exec `json:"exec"`
	Key   string     `json:"key,omitempty"`  // API key it was started with
	Retry retry      `json:"retry,omitzero"` // the key that somebody may ask for it with again
	// its own environment and secrets, to be hidden by a later daemon; only while it runs
	Sealed string `json:"sealed,omitempty"`
	// of a durable one that runs: what a later daemon needs of its command
	Run   *proto.Cmd       `json:"run,omitempty"`
	Host  string           `json:"host,omitempty"`  // boot of the host that it was started in
	Guest string           `json:"guest,omitempty"` // boot of the guest likewise
	Files []string         `json:"files,omitempty"` // published
	Error proto.BlockError `json:"error,omitempty"`
	Notes []string         `json:"notes,omitempty"`
}

// execKey sorts a session's execs together, in the order they began.
func execKey(container, exec string) string { return container + "/" + exec }

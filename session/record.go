package session

import (
	"cmp"
	"slices"
	"time"

	"berth/egress"
	"berth/proto"
	"berth/session/index"
	"berth/session/inventory"
	"berth/session/lease"
	"berth/session/secrets"
)

// Buckets of the ledger.
const (
	bucketSessions   = "sessions"
	bucketWorkspaces = inventory.BucketWorkspaces
	bucketExecs      = "execs"
	bucketClock      = "clock" // one duration under clockKey: how far the wall clock is ahead of the lease clock
	clockKey         = "ahead"
)

// A record is a session in the ledger.
type record struct {
	ID    string `json:"id"`
	Owner string `json:"owner"`
	Key   string `json:"key,omitempty"` // the API key it was made with
	// the idempotency key it can be asked for with again
	Retry          retry                    `json:"retry,omitzero"`
	Name           string                   `json:"name,omitempty"` // unique among the owner's live sessions
	State          proto.State              `json:"state"`
	Generation     int64                    `json:"generation"`
	Image          string                   `json:"image"`
	Digest         string                   `json:"digest"`
	Class          proto.RuntimeClass       `json:"class"`
	Sudo           bool                     `json:"sudo,omitempty"` // see Spec.Sudo
	Workspace      string                   `json:"workspace"`
	Layer          string                   `json:"layer,omitempty"`     // "" in records of older daemons
	Discarded      []string                 `json:"discarded,omitempty"` // layers that have to be removed
	From           *origin                  `json:"from,omitempty"`      // its files are still to be copied
	Job            string                   `json:"job"`                 // the job of execs that name none
	Labels         map[string]string        `json:"labels,omitempty"`
	Sealed         string                   `json:"sealed,omitempty"`       // see sealedFields
	Names          []string                 `json:"secret_names,omitempty"` // the names in Secrets
	ClearEnv       map[string]string        `json:"env,omitempty"`          // Env in clear, as older daemons wrote it
	Env            map[string]string        `json:"-"`
	Secrets        map[string]string        `json:"-"`
	NetworkSecrets map[string]egress.Secret `json:"-"` // secrets that the proxy puts into requests
	// tools that its code may call, without toolSecrets; nil: none
	Tools       *proto.CodeTools  `json:"tools,omitempty"`
	ToolsOpened bool              `json:"offered,omitempty"` // its code was given tools later; see OpenTools
	toolSecrets secrets.Tools     // of Tools; sealed with the rest
	unsealErr   error             // why Sealed could not be opened
	Limits      proto.Limits      `json:"limits"`
	Network     proto.Network     `json:"network,omitzero"`
	Public      proto.PublicPorts `json:"public_ports,omitzero"`
	Mounts      []Mount           `json:"fixtures,omitempty"`
	Isolation   proto.Isolation   `json:"isolation,omitzero"` // as of the last start
	Host        string            `json:"host,omitempty"`     // boot ID of the host that it was made on
	Created     time.Time         `json:"created"`
	LastUsed    time.Time         `json:"last_used"` // as of the last write; memory has a newer one
	Lifetime    time.Duration     `json:"lifetime"`  // from Created to the cap
	Lease       lease.Lease       `json:"lease"`
	OldIdle     time.Duration     `json:"idle,omitempty"` // Lease.Idle, as older daemons wrote it
	// from Created to its end if it is never used; 0 once it was
	Unused        time.Duration `json:"unused_lifetime,omitempty"`
	Ended         time.Time     `json:"ended,omitzero"`     // when it expired
	Delete        bool          `json:"delete,omitempty"`   // removal has begun and has to be finished
	Keep          bool          `json:"keep,omitempty"`     // keep the workspace on removal
	Fleeting      bool          `json:"fleeting,omitempty"` // it ends with the daemon that made it
	InputsMissing bool          `json:"unfilled,omitempty"` // not all of its inputs are in place yet
}

// cap returns when the session is removed with its files.
func (r record) cap() time.Time { return r.Created.Add(r.Lifetime) }

// expires returns when the lease ends if the session is not used, at most the cap.
func (r record) expires() time.Time {
	t := r.Lease.Ends(r.LastUsed)
	if c := r.cap(); t.After(c) {
		return c
	}
	return t
}

// life returns what bounds the session beside its lease. keep is how long paused sessions are kept.
func (r record) life(keep time.Duration) lease.Life {
	l := lease.Life{Used: r.LastUsed, State: r.State, Cap: r.cap(), Keep: keep}
	if r.Unused > 0 {
		l.Unused = r.Created.Add(r.Unused)
	}
	return l
}

// unusedFor reports whether the session was unused for d; d of 0 means never.
func (r record) unusedFor(d time.Duration, now time.Time) bool {
	return d > 0 && !now.Before(r.LastUsed.Add(d))
}

// latest returns the latest time in the record.
func (r record) latest() time.Time {
	return slices.MaxFunc([]time.Time{r.LastUsed, r.Created, r.Ended}, time.Time.Compare)
}

func (r record) spec() Spec {
	return Spec{Owner: r.Owner, Image: r.Digest, Class: r.Class, Sudo: r.Sudo, Workspace: r.Workspace, Layer: r.Layer,
		Limits: r.Limits.Or(DefaultLimits), Network: r.connected(), Hostname: r.hostname()}
}

// entry returns what the index knows of the session.
func (r record) entry() index.Entry {
	return index.Entry{ID: r.ID, Owner: r.Owner, Key: r.Key, Retry: r.Retry.Key}
}

// hostname returns the host name of the session's sandboxes.
func (r record) hostname() string { return cmp.Or(r.Name, DefaultHostname) }

// layers returns the layers that the session may have on disk.
func (r record) layers() []string { return append(slices.Clone(r.Discarded), r.Layer) }

// network returns the network as clients see it.
func (r record) network() proto.Network {
	n := r.Network
	setDefault(&n.Mode, proto.NetworkNone)
	n.Allow, n.Deny = slices.Clone(n.Allow), slices.Clone(n.Deny)
	return n
}

// connected reports whether the session has a network.
func (r record) connected() bool { return r.Network.Mode.Covers(proto.NetworkAllowlist) }

// placeholders returns the network secrets in a command's environment.
func (r record) placeholders() map[string]string {
	return secrets.MapValues(r.NetworkSecrets, func(s egress.Secret) string { return s.Placeholder })
}

// networkSecretValues returns the values to hide in texts.
func (r record) networkSecretValues() map[string]string {
	return secrets.MapValues(r.NetworkSecrets, func(s egress.Secret) string { return s.Value })
}

// shownNetworkSecrets returns the network secrets without their values.
func (r record) shownNetworkSecrets() map[string]proto.NetworkSecret {
	return secrets.MapValues(r.NetworkSecrets, func(s egress.Secret) proto.NetworkSecret {
		return proto.NetworkSecret{Hosts: slices.Clone(s.Hosts)}
	})
}

// dropSecrets drops the secrets of a session that will never run again.
func (r *record) dropSecrets() {
	r.Env, r.ClearEnv, r.Secrets, r.NetworkSecrets, r.toolSecrets = nil, nil, nil, nil, secrets.Tools{}
	r.Sealed, r.Names, r.unsealErr = "", nil, nil
}

// hasTools reports whether code in the session may call tools, now or after OpenTools.
func (r record) hasTools() bool { return r.Tools != nil || r.ToolsOpened }

// shownTools returns the granted tools without secrets, or nil.
func (r record) shownTools() *proto.CodeTools {
	if r.Tools == nil {
		return nil
	}
	granted := r.Tools.Clone()
	return &granted
}

// holdToolSecrets moves the secrets out of the record's tools, to be sealed with the rest.
func (r *record) holdToolSecrets() {
	if r.Tools != nil {
		r.toolSecrets = secrets.Tools{Headers: r.Tools.Provider.Headers, Secret: r.Tools.Provider.Secret}
		r.Tools.Provider.Headers, r.Tools.Provider.Secret = nil, ""
	}
}

// A workspaceRecord is a workspace in the ledger.
type workspaceRecord struct {
	ID      string    `json:"id"`
	Owner   string    `json:"owner"`
	Created time.Time `json:"created"`
	Session string    `json:"session"`        // the session that has it; "": none
	Kept    bool      `json:"kept"`           // outlives its session
	Key     string    `json:"key,omitempty"`  // the API key that its first session was made with
	Lost    bool      `json:"lost,omitempty"` // it was made and is not on disk, and the operator accepted that
	going   bool      // a request is removing it
}

// An execRecord is an exec in the ledger.
type execRecord struct {
	Exec  proto.Exec `json:"exec"`
	Key   string     `json:"key,omitempty"`  // the API key it was started with
	Retry retry      `json:"retry,omitzero"` // the idempotency key it can be asked for with again
	// its own environment and secrets, for a later daemon to hide; only while it runs
	Sealed string `json:"sealed,omitempty"`
	// of a running durable exec: the command as a later daemon needs it
	Run   *proto.Cmd       `json:"run,omitempty"`
	Host  string           `json:"host,omitempty"`  // boot ID of the host that it started on
	Guest string           `json:"guest,omitempty"` // boot ID of the guest that it started in
	Files []string         `json:"files,omitempty"` // published
	Error proto.BlockError `json:"error,omitempty"`
	Notes []string         `json:"notes,omitempty"`
}

// execKey sorts a session's execs together, in the order of their start.
func execKey(container, exec string) string { return container + "/" + exec }

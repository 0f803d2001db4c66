package toolstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"berth/proto"
	"berth/session"
	"berth/session/secrets"
	"berth/state/ledger"
	"berth/tools/approval"
	"berth/tools/toolstore/program"
)

// The ledger's buckets that this package owns.
const (
	bucketTools    = "tools"
	bucketNames    = "tool_names"
	bucketVersions = "tool_versions"
	bucketRuns     = "tool_runs"
	bucketLive     = "tool_runs_live"
	bucketKeys     = "tool_run_keys"
)

// Bounds of what is stored.
const (
	maxTools    = 1000 // of one owner
	maxVersions = 100  // of one tool: the newest
)

// checkTimeout bounds the check of a tool's code, in seconds.
const checkTimeout = 20

// Config is what Open needs. Ledger, Sessions, Code and Vault must be set.
type Config struct {
	Ledger       *ledger.DB
	Sessions     *session.Sessions
	Code         Runner
	Vault        secrets.Vault
	NetworkMax   proto.NetworkMode      // the widest network that the daemon gives to containers; "" is none
	ProviderKeys map[string]string      // environment of every tool, which its own variables override
	ParkTime     time.Duration          // how long a run waits for approval; 0 is 24 hours
	Audit        func(proto.AuditEntry) // called for each run that waits for approval; nil: no audit
	Log          *slog.Logger           // nil: slog.Default
	Now          func() time.Time       // nil: time.Now
}

// A Runner runs programs in interpreters, each in a container of its own or in the one that the program names.
// *code.Runner is one.
type Runner interface {
	Once(ctx context.Context, owner string, p proto.Program, each func(proto.Progress) error,
		answer func(proto.Outcome) error) error
}

// A Store holds all tools of a daemon, and their runs.
type Store struct {
	cfg     Config
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup // runs under way
	sweeper approval.Sweeper

	// Read-locked from before a parked run is recorded until the audit log has it. Who decides about one locks it
	// before the decision is told, so that the log has both in their order.
	parking sync.RWMutex

	mu      sync.Mutex               // guards what follows
	changed chan struct{}            // closed and replaced when a run's state changes
	lists   map[string]chan struct{} // by owner, for those who wait; closed when the list of tools changes
	closed  bool
}

// A toolRecord is the ledger's record of a tool, without its versions.
type toolRecord struct {
	ID      string    `json:"id"`
	Owner   string    `json:"owner"`
	Name    string    `json:"name"`
	Version int64     `json:"version"` // the current one
	Created time.Time `json:"created"`
}

// A versionRecord is one version of a tool.
type versionRecord struct {
	Version        int64         `json:"version"`
	Description    string        `json:"description"`
	Configuration  Configuration `json:"configuration"` // without env_variables
	ApprovalAction string        `json:"approval_action,omitempty"`
	EnvNames       []string      `json:"env_names,omitempty"`
	Sealed         string        `json:"sealed,omitempty"` // env_variables, under the tool's ID
	Created        time.Time     `json:"created"`
	By             string        `json:"by,omitempty"` // API key
}

// Open opens the stored tools. Runs that an earlier daemon left running are lost.
func Open(cfg Config) (*Store, error) {
	if cfg.Audit == nil {
		cfg.Audit = func(proto.AuditEntry) {}
	}
	cfg.Log, cfg.ParkTime = cmp.Or(cfg.Log, slog.Default()), cmp.Or(cfg.ParkTime, 24*time.Hour)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Store{cfg: cfg, changed: make(chan struct{}), lists: map[string]chan struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, cfg.Ledger.Update(func(tx *ledger.Tx) error {
		return runs.EachLive(tx, "", func(rec runRecord) error {
			if rec.State != proto.RunRunning {
				return nil
			}
			rec.State, rec.Error, rec.EndedAt, rec.Kept = proto.RunLost, lostError(), proto.AtOrNil(cfg.Now()), ""
			return rec.put(tx)
		})
	})
}

// Close ends the runs under way; they are lost.
func (c *Store) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	return nil
}

// Create stores a tool as its version 1.
func (c *Store) Create(ctx context.Context, owner string, req NewTool) (Tool, error) {
	if err := req.check(); err != nil {
		return Tool{}, err
	}
	note, err := c.checkCode(ctx, owner, req)
	if err != nil {
		return Tool{}, err
	}
	r := toolRecord{ID: proto.NewID(toolPrefix), Owner: owner, Name: req.Name, Version: 1, Created: c.cfg.Now()}
	v, err := c.newVersion(ctx, r, req)
	if err != nil {
		return Tool{}, err
	}
	err = c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		if err := checkNewName(tx, owner, req.Name); err != nil {
			return err
		}
		if err := v.checkHostNames(); err != nil {
			return err
		}
		return putAll(tx, r, v)
	})
	if err == nil {
		c.announceList(owner)
	}
	return r.info(v, note...), err
}

// ListChanged returns a channel that is closed when an owner's list of tools changes next: a tool is stored, gets a
// new version or is deleted.
func (c *Store) ListChanged(owner string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.lists[owner]
	if ch == nil {
		ch = make(chan struct{})
		c.lists[owner] = ch
	}
	return ch
}

// announceList wakes those who wait for a change of an owner's list of tools.
func (c *Store) announceList(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.lists[owner]; ch != nil {
		close(ch)
		delete(c.lists, owner)
	}
}

// checkCode has an interpreter check a tool's code without running it. If no interpreter is available, the tool is
// stored all the same, with a note.
func (c *Store) checkCode(ctx context.Context, owner string, t NewTool) (note []string, err error) {
	var out proto.Outcome
	req := proto.Program{Code: program.Source(t.Name, t.Configuration.Code, nil, true),
		Shown: "checking tool " + t.Name, TimeoutSeconds: checkTimeout, Confinement: t.Configuration.Confinement}
	err = c.cfg.Code.Once(ctx, owner, req, nil, func(o proto.Outcome) error { out = o; return nil })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return []string{"the code was not checked, since no container was available: " + proto.AsError(err).Message},
			nil
	}
	text, err := program.Checked(out)
	if text != "" {
		note = []string{text}
	}
	return note, err
}

// newVersion makes the record of req as r's newest version.
func (c *Store) newVersion(ctx context.Context, r toolRecord, req NewTool) (versionRecord, error) {
	v := versionRecord{Version: r.Version, Description: req.Description, Configuration: req.Configuration,
		ApprovalAction: req.ApprovalAction, Created: c.cfg.Now(), By: proto.CallerOf(ctx).KeyID}
	v.EnvNames = slices.Sorted(maps.Keys(req.Configuration.EnvVariables))
	v.Configuration.EnvVariables = nil
	if err := cmp.Or(c.checkHosts(req.Configuration), c.checkAllowed(req.Configuration)); err != nil {
		return v, err
	}
	env := req.Configuration.EnvVariables
	if len(env) == 0 {
		return v, nil
	}
	text, err := json.Marshal(env)
	if err == nil {
		v.Sealed, err = c.cfg.Vault.Seal(r.ID, text)
	}
	return v, err
}

// checkHosts checks whether variables may be inserted into requests to the named hosts. Values taken over from the
// version before were checked then.
func (c *Store) checkHosts(cfg Configuration) error {
	asked := map[string]proto.NetworkSecret{}
	for name, hosts := range cfg.EnvHosts {
		asked[name] = proto.NetworkSecret{Value: cmp.Or(cfg.EnvVariables[name], "not given"), Hosts: hosts}
	}
	err := c.cfg.Sessions.CheckNetworkSecrets(networkOf(cfg), asked)
	var e *proto.Error
	if errors.As(err, &e) {
		return proto.Errorf(e.Code, "", "configuration.env_hosts", "configuration.env_hosts: %s", e.Message)
	}
	return err
}

// checkAllowed checks whether a container can be confined as a configuration asks.
func (c *Store) checkAllowed(cfg Configuration) error {
	err := c.cfg.Sessions.CheckConfinement(cfg.Confinement)
	var e *proto.Error
	if errors.As(err, &e) {
		return proto.Errorf(e.Code, "", "configuration."+e.Item, "configuration.%s", e.Message)
	}
	return err
}

// checkHostNames fails if hosts are given for an unknown variable.
func (v versionRecord) checkHostNames() error {
	for _, name := range slices.Sorted(maps.Keys(v.Configuration.EnvHosts)) {
		if !slices.Contains(v.EnvNames, name) {
			return proto.Invalid("configuration.env_hosts."+name, "configuration.env_hosts: there is no %.80q among "+
				"env_variables; leave it out, or give its value", name)
		}
	}
	return nil
}

// checkNewName fails if a name is taken, or if the owner has too many tools.
func checkNewName(tx *ledger.Tx, owner, name string) error {
	var id string
	taken, err := tx.Get(bucketNames, owner+"/"+name, &id)
	if err != nil {
		return err
	}
	if taken {
		return proto.Errorf(proto.AlreadyExists, "", name, "a tool named %s exists already; change it, which "+
			"makes a new version, or choose another name", name)
	}
	n := 0
	if err := tx.Scan(bucketNames, owner+"/", func(string, []byte) (bool, error) {
		n++
		return true, nil
	}); err != nil {
		return err
	}
	if n >= maxTools {
		return proto.Errorf(proto.QuotaExceeded, "", name, "there are %d tools, which is the limit of one owner; "+
			"delete one", n)
	}
	return nil
}

// putAll writes a tool with its current version.
func putAll(tx *ledger.Tx, r toolRecord, v versionRecord) error {
	if err := tx.Put(bucketNames, r.Owner+"/"+r.Name, r.ID); err != nil {
		return err
	}
	if err := tx.Put(bucketTools, r.Owner+"/"+r.ID, r); err != nil {
		return err
	}
	if old := v.Version - maxVersions; old > 0 {
		if err := tx.Delete(bucketVersions, versionKey(r.ID, old)); err != nil {
			return err
		}
	}
	return tx.Put(bucketVersions, versionKey(r.ID, v.Version), v)
}

// Change makes a new version of a tool and makes it current.
func (c *Store) Change(ctx context.Context, owner, name string, req ChangeTool) (Tool, error) {
	r, v, err := c.find(owner, name, 0)
	if err != nil {
		return Tool{}, err
	}
	next, err := req.on(r, v)
	if err != nil {
		return Tool{}, err
	}
	var note []string
	if req.Configuration != nil {
		if note, err = c.checkCode(ctx, owner, next); err != nil {
			return Tool{}, err
		}
	}
	made, err := c.newVersion(ctx, r, next)
	if err != nil {
		return Tool{}, err
	}
	err = c.cfg.Ledger.Update(func(tx *ledger.Tx) error { return c.supersede(tx, owner, req, &r, &made) })
	if err == nil {
		c.announceList(owner)
	}
	return r.info(made, note...), err
}

// supersede writes a version over the current one. What the request leaves out comes from the version that is current
// now, not from the one that Change read first. Two concurrent changes therefore do not undo each other.
func (c *Store) supersede(tx *ledger.Tx, owner string, req ChangeTool, r *toolRecord, made *versionRecord) error {
	now, v, err := find(tx, owner, r.ID, 0)
	if err != nil {
		return err
	}
	if req.Description == nil {
		made.Description = v.Description
	}
	if req.ApprovalAction == nil {
		made.ApprovalAction = v.ApprovalAction
	}
	if req.Configuration == nil {
		made.Configuration = v.Configuration
	}
	if req.Configuration == nil || req.Configuration.EnvVariables == nil {
		made.EnvNames, made.Sealed = v.EnvNames, v.Sealed
	}
	if err := made.checkHostNames(); err != nil {
		return err
	}
	now.Version++
	made.Version = now.Version
	*r = now
	return putAll(tx, now, *made)
}

// find returns a tool by its name or ID, and one of its versions; 0 is the current one.
func (c *Store) find(owner, name string, version int64) (r toolRecord, v versionRecord, err error) {
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, v, err = find(tx, owner, name, version)
		return err
	})
	return r, v, err
}

func find(tx *ledger.Tx, owner, name string, version int64) (r toolRecord, v versionRecord, err error) {
	id := name
	if !proto.ValidID(toolPrefix, name) {
		if !validToolName(name) {
			return r, v, notFound("tool", name)
		}
		if _, err := tx.Get(bucketNames, owner+"/"+name, &id); err != nil {
			return r, v, err
		}
	}
	known, err := tx.Get(bucketTools, owner+"/"+id, &r)
	if err != nil {
		return r, v, err
	}
	if !known {
		return r, v, notFound("tool", name)
	}
	known, err = tx.Get(bucketVersions, versionKey(r.ID, cmp.Or(version, r.Version)), &v)
	if err == nil && !known {
		err = proto.Errorf(proto.NotFound, "", "version", "tool %s has no version %d; the tool lists its "+
			"versions, of which the newest %d are kept", r.Name, version, maxVersions)
	}
	return r, v, err
}

// Get describes a tool by its name or ID. Version 0 is the current one.
func (c *Store) Get(owner, name string, version int64) (Tool, error) {
	r, v, err := c.find(owner, name, version)
	return r.info(v), err
}

// List describes an owner's tools, sorted by name.
func (c *Store) List(owner string) (list []Tool, err error) {
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		var ids []string
		if err := ledger.Each(tx, bucketNames, owner+"/", func(_ string, id string) {
			ids = append(ids, id)
		}); err != nil {
			return err
		}
		for _, id := range ids {
			r, v, err := find(tx, owner, id, 0)
			if err != nil {
				return fmt.Errorf("reading tool %s: %w", id, err)
			}
			list = append(list, r.info(v))
		}
		return nil
	})
	return list, err
}

// Versions describes the stored versions of a tool, newest first.
func (c *Store) Versions(owner, name string) (list []Tool, err error) {
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, _, err := find(tx, owner, name, 0)
		if err != nil {
			return err
		}
		return ledger.Each(tx, bucketVersions, r.ID+"/", func(_ string, v versionRecord) {
			list = append(list, r.info(v))
		})
	})
	slices.Reverse(list)
	return list, err
}

// Delete removes a tool with its versions. Its runs stay; those that wait for approval are refused.
func (c *Store) Delete(ctx context.Context, owner, name string) (id string, err error) {
	r, _, err := c.find(owner, name, 0)
	if err != nil {
		return "", err
	}
	now := c.cfg.Now()
	err = c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		if _, _, err := find(tx, owner, r.ID, 0); err != nil { // another caller was faster
			return err
		}
		for bucket, key := range map[string]string{bucketTools: owner + "/" + r.ID, bucketNames: owner + "/" + r.Name} {
			if err := tx.Delete(bucket, key); err != nil {
				return err
			}
		}
		if err := tx.DeletePrefix(bucketVersions, r.ID+"/"); err != nil {
			return err
		}
		return runs.EachLive(tx, owner, func(run runRecord) error {
			if run.ToolID != r.ID || run.State != proto.RunParked {
				return nil
			}
			return run.settle(tx, proto.RunRefused, Decision{By: proto.Actor(ctx), At: proto.At(now),
				Reason: "the tool was deleted"})
		})
	})
	c.notify()
	c.announceList(owner)
	return r.ID, err
}

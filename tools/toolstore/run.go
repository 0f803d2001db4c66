package toolstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"berth/proto"
	"berth/proto/span"
	"berth/state/ledger"
	"berth/tools/approval"
	"berth/tools/toolstore/field"
	"berth/tools/toolstore/program"
)

// Wire types that this package reads and answers with.
type (
	Tool          = proto.Tool
	Configuration = proto.ToolConfiguration
	Field         = proto.ToolField
	RunRequest    = proto.ToolRunRequest
	Run           = proto.ToolRun
	RunError      = proto.ToolRunError
	Decision      = proto.Decision
	Refusal       = proto.Refusal
)

// maxLogs bounds the output that is stored of each stream of a run, in bytes.
const maxLogs = 64 << 10

// A runRecord is the ledger's record of a run.
type runRecord struct {
	Run
	Owner string   `json:"owner"`
	Image string   `json:"image,omitempty"`
	Asked []string `json:"asked,omitempty"` // stored files
	// Confinement is what the run asks for in addition to the tool's configuration.
	Confinement proto.Confinement `json:"confinement,omitzero"`
	Key         string            `json:"key,omitempty"`  // idempotency key
	Hash        string            `json:"hash,omitempty"` // of the request that came with it
	// for a run that waits for approval, whose Input has secrets replaced: the original input, sealed under the run's
	// ID
	Kept string `json:"kept,omitempty"`
}

// runs are the records of all runs.
var runs = approval.Records[runRecord]{Bucket: bucketRuns, Live: bucketLive}

func (r runRecord) put(tx *ledger.Tx) error { return runs.Put(tx, r.Owner, r.ID, r, r.State.Over()) }

func (r runRecord) retryKey() string { return r.Owner + "/" + r.ToolID + "/" + r.Key }

// Run runs a tool and returns the run when it is over, or at once if it waits for approval or runs in the background.
// A background run, or one with an idempotency key, does not end with ctx. replayed reports that the run belongs to an
// earlier request with the same key.
func (c *Store) Run(ctx context.Context, owner, name string, req RunRequest) (run Run, replayed bool, err error) {
	r, v, err := c.find(owner, name, req.Version)
	if err != nil {
		return Run{}, false, err
	}
	rec, err := c.newRun(ctx, r, v, req)
	if err != nil {
		return Run{}, false, err
	}
	env, err := c.environment(r.ID, v)
	if err != nil {
		return Run{}, false, err
	}
	input := rec.Input
	if err := c.hideInput(&rec, env); err != nil {
		return Run{}, false, err
	}
	c.parking.RLock()
	replayed, err = c.recordRun(&rec)
	if err == nil && !replayed && rec.State == proto.RunParked {
		c.cfg.Audit(proto.AuditEntry{Act: actPark, Outcome: proto.AuditOK, Actor: proto.Actor(ctx), Owner: owner,
			RequestID: proto.RequestIDOf(ctx), ContainerID: rec.Container, Item: rec.ID, Note: "tool " + rec.Tool})
	}
	c.parking.RUnlock()
	if err != nil {
		return Run{}, false, err
	}
	switch {
	case rec.State == proto.RunParked:
		// as recorded: it may have been decided since, but the caller is to learn that it waits
		return rec.Run, replayed, nil
	case replayed && !req.Background && rec.State == proto.RunRunning:
		run, err = c.Await(ctx, owner, rec.ID)
		return run, true, err
	case !replayed && rec.State == proto.RunRunning:
		runCtx := ctx
		if req.Background || rec.Key != "" {
			runCtx = context.WithoutCancel(ctx)
		}
		done := c.launch(runCtx, rec, v, env, input)
		if !req.Background {
			<-done
		}
	}
	run, err = c.GetRun(owner, rec.ID)
	return run, replayed, err
}

// actPark is the audit action of a run that waits for approval.
const actPark = "tool_run.park"

// newRun makes the record of a request: the input is checked, and nothing has started.
func (c *Store) newRun(ctx context.Context, r toolRecord, v versionRecord, req RunRequest) (runRecord, error) {
	switch {
	case v.ApprovalAction == ApprovalDeny:
		return runRecord{}, proto.Errorf(proto.PermissionDenied, "", r.Name, "tool %s has the approval_action deny "+
			"and does not run; change it to allow or review", r.Name)
	case len(req.Input) > MaxInput:
		return runRecord{}, proto.Errorf(proto.TooLarge, "", "input", "input has %d bytes; %d is the limit; upload "+
			"what is large as a file and name it in files", len(req.Input), MaxInput)
	case req.Version < 0:
		return runRecord{}, proto.Invalid("version", "version must be one of the tool's, or left out for the "+
			"current one")
	case req.Container != "" && req.Image != "":
		return runRecord{}, proto.Invalid(
			"image", "image is for a new container; leave it out where container names one")
	case !proto.ValidRetryKey(req.IdempotencyKey):
		return runRecord{}, proto.Invalid("idempotency_key",
			"the idempotency key must be 1 to %d printable ASCII characters",
			proto.MaxRetryKey)
	}
	if id := c.cfg.Sessions.IDOf(r.Owner, req.Container); id != "" {
		req.Container = id // the name may be another container's by the time of an approval
	}
	if err := c.checkContainer(r, v.Configuration, req.Container); err != nil {
		return runRecord{}, err
	}
	if err := c.checkConfinement(r, v.Configuration, req); err != nil {
		return runRecord{}, err
	}
	input, dropped, err := field.Input(v.Configuration.InputSchema, req.Input)
	if err != nil {
		return runRecord{}, err
	}
	text, err := field.Encode(input)
	if err != nil {
		return runRecord{}, err
	}
	now := c.cfg.Now()
	rec := runRecord{Owner: r.Owner, Image: req.Image, Asked: req.Files, Confinement: req.Confinement,
		Key: req.IdempotencyKey, Run: Run{
			ID: proto.NewID(runPrefix), ToolID: r.ID, Tool: r.Name, Version: v.Version,
			State: proto.RunRunning, Input: text,
			Logs:  proto.Logs{Stdout: []string{}, Stderr: []string{}},
			Files: []proto.BashOutput{}, Container: req.Container,
			RequestedBy: proto.Actor(ctx), CreatedAt: proto.At(now),
		}}
	if len(dropped) > 0 {
		rec.Notes = []string{proto.Shorten("fields of the input that input_schema does not have were left out: "+
			strings.Join(dropped, ", "), 1000)}
	}
	if v.ApprovalAction == ApprovalReview {
		rec.State, rec.ExpiresAt = proto.RunParked, proto.AtOrNil(now.Add(c.cfg.ParkTime))
	} else {
		rec.StartedAt = &rec.CreatedAt
	}
	if rec.Key != "" { // the hash tells apart requests that come with the same key
		req.IdempotencyKey, req.Background = "", false
		text, err = json.Marshal(req)
		sum := sha256.Sum256(text)
		rec.Hash = hex.EncodeToString(sum[:])
	}
	return rec, err
}

// checkContainer checks whether the run can use the named container, or a new one.
func (c *Store) checkContainer(r toolRecord, cfg Configuration, container string) error {
	if container == "" {
		// whether this daemon gives containers the network that the tool asks for
		if n := networkOf(cfg); !c.cfg.NetworkMax.Covers(n.Mode) {
			return proto.Errorf(proto.Unsupported, "", "configuration.allow_network",
				"tool %s has allow_network, and this daemon does not give containers the network %q; its operator can "+
					"allow it with --network-max %s, or change the tool to allow_network false if it can do without",
				r.Name, n.Mode, n.Mode)
		}
		return nil
	}
	s, err := c.cfg.Sessions.Get(r.Owner, container)
	if err != nil {
		return err
	}
	has := s.Info().Network.Mode.Covers(proto.NetworkAllowlist)
	switch {
	case len(cfg.EnvHosts) > 0:
		return proto.Errorf(proto.Conflict, "", "container", "tool %s has env_hosts, which need a new container for "+
			"each run; leave container out", r.Name)
	case has && !cfg.AllowNetwork:
		return proto.Errorf(proto.Conflict, "", "container", "tool %s has no allow_network, and container %s has a "+
			"network; name one without, or none", r.Name, container)
	case !has && cfg.AllowNetwork:
		return proto.Errorf(proto.Conflict, "", "container", "tool %s has allow_network, and container %s has no "+
			"network; name one that was created with it, or none", r.Name, container)
	}
	return nil
}

// checkConfinement checks whether the run's container can be confined as the tool and the request ask. A class that the
// tool names holds for each run of it, also for one in a container that exists.
func (c *Store) checkConfinement(r toolRecord, cfg Configuration, req RunRequest) error {
	if req.Container != "" {
		if err := req.WithContainer(); err != nil {
			return err
		}
		s, err := c.cfg.Sessions.Get(r.Owner, req.Container)
		if err != nil {
			return err
		}
		if has := s.Info().RuntimeClass; cfg.RuntimeClass != "" && cfg.RuntimeClass != has {
			return proto.Errorf(proto.Conflict, "", "container", "tool %s runs in runtime class %q, and container %s "+
				"has %q; name one of that class, or none", r.Name, cfg.RuntimeClass, req.Container, has)
		}
		return nil
	}
	if has := cfg.RuntimeClass; has != "" && req.RuntimeClass != "" && req.RuntimeClass != has {
		return proto.Errorf(proto.Conflict, "", "runtime_class", "tool %s runs in runtime class %q; leave "+
			"runtime_class out", r.Name, has)
	}
	return c.cfg.Sessions.CheckConfinement(req.Confinement.Or(cfg.Confinement))
}

// networkOf is the network of a run's container: any public host through the daemon's proxy, or none.
func networkOf(cfg Configuration) (n proto.Network) {
	if cfg.AllowNetwork {
		n.Mode = proto.NetworkOpen
	}
	return n
}

// recordRun writes a new run, or finds the run that has its key.
func (c *Store) recordRun(rec *runRecord) (replayed bool, err error) {
	fresh := *rec
	err = c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		*rec, replayed = fresh, false
		if fresh.Key == "" {
			return fresh.put(tx)
		}
		var id string
		var old runRecord
		known, err := tx.Get(bucketKeys, fresh.retryKey(), &id)
		if err == nil && known {
			known, err = tx.Get(bucketRuns, fresh.Owner+"/"+id, &old)
		}
		switch {
		case err != nil:
			return err
		case known && old.Hash != fresh.Hash:
			return proto.Errorf(proto.Conflict, "", fresh.Key, "idempotency key %q was used for another request; use "+
				"a new key for each new request", fresh.Key)
		case known:
			*rec, replayed = old, true
			return nil
		}
		if err := tx.Put(bucketKeys, fresh.retryKey(), fresh.ID); err != nil {
			return err
		}
		return fresh.put(tx)
	})
	if err == nil {
		c.notify()
	}
	return replayed, err
}

// launch starts a run that is recorded as running. The returned channel is closed when the end of the run is
// recorded.
func (c *Store) launch(ctx context.Context, rec runRecord, v versionRecord, env map[string]string,
	input []byte) <-chan struct{} {
	done := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // the next daemon finds it running, and marks it lost
		close(done)
		return done
	}
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(c.ctx, cancel)
	c.wg.Go(func() {
		defer close(done)
		defer cancel()
		defer unhook()
		ctx, sp := span.Start(ctx, span.OperationTool+" "+rec.Tool)
		sp.String(span.Operation, span.OperationTool)
		sp.String(span.ToolName, rec.Tool)
		sp.String(span.RunID, rec.ID)
		c.perform(ctx, &rec, v, env, input)
		if rec.Error != nil {
			sp.Fail(rec.Error.Type)
		}
		sp.End(nil)
		if err := c.cfg.Ledger.Update(rec.put); err != nil {
			c.cfg.Log.Error("recording the end of a tool's run; the next start marks it lost", "run", rec.ID,
				"error", err)
		}
		c.notify()
	})
	return done
}

// perform runs the code and copies the outcome into the record.
func (c *Store) perform(ctx context.Context, rec *runRecord, v versionRecord, env map[string]string, input []byte) {
	placeholders, rest := splitEnv(v.Configuration, env)
	secrets, plain := split(rest)
	req := proto.Program{
		Shown: fmt.Sprintf("tool %s, version %d, %s", rec.Tool, rec.Version, rec.ID),
		Code:  program.Source(rec.Tool, v.Configuration.Code, input, false), Container: rec.Container, Image: rec.Image,
		Network: networkOf(v.Configuration), NetworkSecrets: placeholders, Files: rec.Asked, Env: plain,
		Confinement: rec.Confinement.Or(v.Configuration.Confinement),
		Secrets:     secrets, TimeoutSeconds: v.Configuration.TimeoutSeconds, MaxOutputBytes: maxLogs,
	}
	if rec.Container != "" { // the container has a network and a confinement already
		req.Network, req.Confinement = proto.Network{}, proto.Confinement{}
	}
	began := time.Now()
	err := c.cfg.Code.Once(ctx, rec.Owner, req, nil, func(out proto.Outcome) error {
		program.SetOutcome(&rec.Run, out, v.Configuration.OutputSchema)
		return nil
	})
	if err != nil {
		e := proto.AsError(err)
		rec.Error = &RunError{Type: string(e.Code), Message: e.Message, Field: e.Item}
	}
	rec.DurationMS = float64(time.Since(began).Microseconds()) / 1e3
	rec.EndedAt = proto.AtOrNil(c.cfg.Now())
	switch {
	case err != nil && c.ctx.Err() != nil:
		rec.State, rec.Error = proto.RunLost, lostError()
	case rec.Error != nil:
		rec.State = proto.RunFailed
	default:
		rec.State = proto.RunSucceeded
	}
	rec.hideSecrets(env)
}

func lostError() *RunError {
	return &RunError{Type: string(proto.EndLost),
		Message: "the daemon ended during the run; how far the code came is " +
			"unknown, so it was not started again; run the tool again if that does no harm"}
}

// notify wakes all callers that wait for a run.
func (c *Store) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// GetRun describes a run.
func (c *Store) GetRun(owner, id string) (Run, error) {
	rec, err := c.findRun(owner, id)
	return rec.Run, err
}

func (c *Store) findRun(owner, id string) (rec runRecord, err error) {
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		rec, err = findRun(tx, owner, id)
		return err
	})
	return rec, err
}

func findRun(tx *ledger.Tx, owner, id string) (rec runRecord, err error) {
	known := false
	if proto.ValidID(runPrefix, id) {
		known, err = tx.Get(bucketRuns, owner+"/"+id, &rec)
	}
	if err == nil && !known {
		err = notFound("run", id)
	}
	return rec, err
}

// Await returns a run when it is over, or its current state when ctx ends.
func (c *Store) Await(ctx context.Context, owner, id string) (Run, error) {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		run, err := c.GetRun(owner, id)
		if err != nil || run.State.Over() {
			return run, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return run, nil
		}
	}
}

// A Filter chooses runs. Empty fields choose all.
type Filter struct {
	Tool  string // name or ID
	State proto.ToolRunState
	After string // a run's ID: list the runs that are older
	Limit int    // 0 is 20
}

// Runs lists an owner's runs, newest first, and reports whether there are more.
func (c *Store) Runs(owner string, f Filter) (list []Run, more bool, err error) {
	if f.After != "" && !proto.ValidID(runPrefix, f.After) {
		return nil, false, proto.Invalid("after", "after: %.80q is not a run ID", f.After)
	}
	page, more, err := runs.Page(c.cfg.Ledger, owner, f.After, f.Limit, func(r runRecord) bool {
		return (f.Tool == "" || f.Tool == r.Tool || f.Tool == r.ToolID) && (f.State == "" || f.State == r.State)
	})
	for _, r := range page {
		list = append(list, r.Run)
	}
	return list, more, err
}

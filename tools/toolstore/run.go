package toolstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"berth/code"
	"berth/proto"
	"berth/state/ledger"
)

// Types of errors beyond the reasons for which a command ends, such as "timeout" and "out_of_memory", and the
// daemon's error codes.
const (
	ErrorException     = "exception"
	ErrorSyntax        = "syntax_error"
	ErrorNoRun         = "no_run"
	ErrorExit          = "exit"
	ErrorNotJSON       = "not_serializable"
	ErrorOutputTooBig  = "output_too_large"
	ErrorInvalidOutput = "invalid_output"
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

// A runRecord is the ledger's record of a run.
type runRecord struct {
	Run
	Owner string   `json:"owner"`
	Image string   `json:"image,omitempty"`
	Asked []string `json:"asked,omitempty"` // stored files
	Key   string   `json:"key,omitempty"`   // idempotency key
	Hash  string   `json:"hash,omitempty"`  // of the request that came with it
	// for a parked run, whose Input has secrets replaced: the original input, sealed under the run's ID
	Kept string `json:"kept,omitempty"`
}

// Run runs a tool and returns the run when it is over, or at once if it is parked or in the background. A background
// run, or one with an idempotency key, does not end with ctx. replayed reports that the run belongs to an earlier
// request with the same key.
func (c *Store) Run(ctx context.Context, owner, name string, req RunRequest) (run Run, replayed bool, err error) {
	r, v, err := c.find(owner, name, req.Version)
	if err != nil {
		return Run{}, false, err
	}
	rec, err := c.prepare(ctx, r, v, req)
	if err != nil {
		return Run{}, false, err
	}
	env, err := c.environment(r.ID, v)
	if err != nil {
		return Run{}, false, err
	}
	input := rec.Input
	if err := c.conceal(&rec, env); err != nil {
		return Run{}, false, err
	}
	if replayed, err = c.record(&rec); err != nil {
		return Run{}, false, err
	}
	if rec.State == proto.RunParked {
		// as recorded: it may have been decided since, but the caller is to learn that it waits
		return rec.Run, replayed, nil
	}
	if !replayed && rec.State == proto.RunRunning {
		alone := ctx
		if req.Background || rec.Key != "" {
			alone = context.WithoutCancel(ctx)
		}
		done := c.launch(alone, rec, v, env, input)
		if !req.Background {
			<-done
		}
	} else if replayed && !req.Background && rec.State == proto.RunRunning {
		run, err = c.Await(ctx, owner, rec.ID)
		return run, true, err
	}
	run, err = c.GetRun(owner, rec.ID)
	return run, replayed, err
}

// prepare makes the record of a request: the input is checked, and nothing has started.
func (c *Store) prepare(ctx context.Context, r toolRecord, v versionRecord, req RunRequest) (runRecord, error) {
	if err := c.checkRequest(req); err != nil {
		return runRecord{}, err
	}
	if err := c.checkContainer(r, v.Configuration, req.Container); err != nil {
		return runRecord{}, err
	}
	input, dropped, err := checkInput(v.Configuration.InputSchema, req.Input)
	if err != nil {
		return runRecord{}, err
	}
	text, err := encode(input)
	if err != nil {
		return runRecord{}, err
	}
	now := c.cfg.Now()
	rec := runRecord{Owner: r.Owner, Image: req.Image, Asked: req.Files, Key: req.IdempotencyKey, Run: Run{
		ID: proto.NewID(runPrefix), ToolID: r.ID, Tool: r.Name, Version: v.Version,
		State: proto.RunRunning, Input: text,
		Logs: proto.Logs{Stdout: []string{}, Stderr: []string{}}, Files: []proto.BashOutput{}, Container: req.Container,
		RequestedBy: proto.Actor(ctx), CreatedAt: proto.At(now),
	}}
	if len(dropped) > 0 {
		rec.Notes = []string{cut("fields of the input that input_schema does not have were left out: "+strings.Join(
			dropped, ", "), 1000)}
	}
	if v.ApprovalAction == ApprovalReview {
		rec.State, rec.ExpiresAt = proto.RunParked, proto.AtOrNil(now.Add(c.cfg.ParkTime))
	} else {
		rec.StartedAt = &rec.CreatedAt
	}
	if rec.Key != "" {
		rec.Hash, err = hashOf(req)
	}
	return rec, err
}

func (c *Store) checkRequest(req RunRequest) error {
	switch {
	case len(req.Input) > MaxInput:
		return proto.Errorf(proto.TooLarge, "", "input", "input has %d bytes; %d is the limit; upload what is large "+
			"as a file and name it in files", len(req.Input), MaxInput)
	case req.Version < 0:
		return invalid("version", "version must be one of the tool's, or left out for the current one")
	case req.Container != "" && req.Image != "":
		return invalid("image", "image is for a container that is made; leave it out where container names one")
	case !proto.ValidRetryKey(req.IdempotencyKey):
		return invalid("idempotency_key", "the idempotency key must be 1 to %d printable ASCII characters",
			proto.MaxRetryKey)
	}
	return nil
}

// checkContainer checks whether the run can use the named container, or a new one.
func (c *Store) checkContainer(r toolRecord, cfg Configuration, container string) error {
	if container == "" {
		return c.checkNetwork(r.Name, cfg)
	}
	s, err := c.cfg.Sessions.Get(r.Owner, container)
	if err != nil {
		return err
	}
	has := s.Info().Network.Mode.Covers(proto.NetworkAllowlist)
	switch {
	case len(cfg.EnvHosts) > 0:
		return proto.Errorf(proto.Conflict, "", "container", "tool %s has env_hosts, which belong to a container "+
			"that is made for its run; leave container out", r.Name)
	case has && !cfg.AllowNetwork:
		return proto.Errorf(proto.Conflict, "", "container", "tool %s has no allow_network, and container %s has a "+
			"network; name one without, or none", r.Name, container)
	case !has && cfg.AllowNetwork:
		return proto.Errorf(proto.Conflict, "", "container", "tool %s has allow_network, and container %s has no "+
			"network; name one that was created with it, or none", r.Name, container)
	}
	return nil
}

// hashOf tells apart requests that come with the same key.
func hashOf(req RunRequest) (string, error) {
	req.IdempotencyKey, req.Background = "", false
	text, err := json.Marshal(req)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// checkNetwork checks whether this daemon gives containers the network that a tool asks for.
func (c *Store) checkNetwork(name string, cfg Configuration) error {
	if n := networkOf(cfg); !c.cfg.NetworkMax.Covers(n.Mode) {
		return proto.Errorf(proto.Unsupported, "", "configuration.allow_network",
			"tool %s has allow_network, and this daemon does not give containers the network %q; its operator can "+
				"allow it with --network-max %s, or change the tool to allow_network false if it can do without", name,
			n.Mode, n.Mode)
	}
	return nil
}

// networkOf is the network of a run's container: any public host through the daemon's proxy, or none.
func networkOf(cfg Configuration) (n proto.Network) {
	if cfg.AllowNetwork {
		n.Mode = proto.NetworkOpen
	}
	return n
}

// record writes a new run, or finds the run that has its key.
func (c *Store) record(rec *runRecord) (replayed bool, err error) {
	fresh := *rec
	err = c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		*rec, replayed = fresh, false
		if fresh.Key != "" {
			old, err := withKey(tx, fresh)
			if old != nil || err != nil {
				if old != nil {
					*rec, replayed = *old, true
				}
				return err
			}
			if err := tx.Put(bucketKeys, fresh.retryKey(), fresh.ID); err != nil {
				return err
			}
		}
		return fresh.put(tx)
	})
	if err == nil {
		c.notify()
	}
	return replayed, err
}

func (r runRecord) retryKey() string { return r.Owner + "/" + r.ToolID + "/" + r.Key }

// withKey returns the run that already has another run's key.
func withKey(tx *ledger.Tx, r runRecord) (*runRecord, error) {
	var id string
	if known, err := tx.Get(bucketKeys, r.retryKey(), &id); err != nil || !known {
		return nil, err
	}
	var old runRecord
	if known, err := tx.Get(bucketRuns, r.Owner+"/"+id, &old); err != nil || !known {
		return nil, err
	}
	if old.Hash != r.Hash {
		return nil, proto.Errorf(proto.Conflict, "", r.Key, "idempotency key %q was used for another request; use a "+
			"new key for each new request", r.Key)
	}
	return &old, nil
}

// put writes a run, and whether it is live.
func (r runRecord) put(tx *ledger.Tx) error {
	if err := tx.Put(bucketRuns, r.Owner+"/"+r.ID, r); err != nil {
		return err
	}
	if r.State.Over() {
		return tx.Delete(bucketLive, r.ID)
	}
	return tx.Put(bucketLive, r.ID, r.Owner)
}

// conceal hides secrets in a run before it is recorded. A parked run also keeps its original input, sealed.
func (c *Store) conceal(rec *runRecord, env map[string]string) (err error) {
	input := rec.Input
	rec.cover(env)
	if rec.State == proto.RunParked && !bytes.Equal(input, rec.Input) {
		rec.Kept, err = c.cfg.Vault.Seal(rec.ID, input)
	}
	return err
}

// reveal returns the input of a run that was parked.
func (c *Store) reveal(rec runRecord) ([]byte, error) {
	if rec.Kept == "" {
		return rec.Input, nil
	}
	return c.cfg.Vault.Unseal(rec.ID, rec.Kept)
}

// cover hides secrets of an environment in a run.
func (r *runRecord) cover(env map[string]string) {
	secrets, _ := split(env)
	hideSecrets(&r.Run, secrets)
}

// launch starts a run that is recorded as running. The returned channel is closed when the end of the run is
// recorded.
func (c *Store) launch(ctx context.Context, rec runRecord, v versionRecord, env map[string]string,
	input []byte) <-chan struct{} {
	done := make(chan struct{})
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.wg.Add(1)
	}
	c.mu.Unlock()
	if closed { // the next daemon finds it running, and marks it lost
		close(done)
		return done
	}
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(c.ctx, cancel)
	go func() {
		defer c.wg.Done()
		defer close(done)
		defer cancel()
		defer unhook()
		c.perform(ctx, &rec, v, env, input)
		if err := c.finish(rec); err != nil {
			c.cfg.Log.Error("recording the end of a tool's run; the next start takes it for lost", "run", rec.ID,
				"error", err)
		}
	}()
	return done
}

// perform runs the code and copies the outcome into the record.
func (c *Store) perform(ctx context.Context, rec *runRecord, v versionRecord, env map[string]string, input []byte) {
	placeholders, rest := splitEnv(v.Configuration, env)
	secrets, plain := split(rest)
	req := code.Program{
		Shown: fmt.Sprintf("tool %s, version %d, %s", rec.Tool, rec.Version, rec.ID),
		Program: proto.Program{
			Code: program(rec.Tool, v.Configuration.Code, input, false), Container: rec.Container, Image: rec.Image,
			Network: networkOf(v.Configuration), NetworkSecrets: placeholders, Files: rec.Asked, Env: plain,
			Secrets: secrets, TimeoutSeconds: v.Configuration.TimeoutSeconds, MaxOutputBytes: maxLogs,
		},
	}
	if rec.Container != "" { // the container has a network already
		req.Network = proto.Network{}
	}
	began := time.Now()
	err := c.cfg.Code.Once(ctx, rec.Owner, req, func(out code.Outcome) error {
		setOutcome(&rec.Run, out, v.Configuration.OutputSchema)
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
	rec.cover(env)
}

func lostError() *RunError {
	return &RunError{Type: string(proto.EndLost), Message: "the daemon ended while this ran; how far it came is " +
		"unknown, so it was not begun again; run the tool anew if that does no harm"}
}

// finish records the end of a run.
func (c *Store) finish(rec runRecord) error {
	err := c.cfg.Ledger.Update(rec.put)
	c.notify()
	return err
}

// notify wakes all callers that wait for a run.
func (c *Store) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// changes returns a channel that is closed at the next change of a run.
func (c *Store) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
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
	if !proto.ValidID(runPrefix, id) {
		return rec, notFound("run", id)
	}
	known, err := tx.Get(bucketRuns, owner+"/"+id, &rec)
	if err == nil && !known {
		err = notFound("run", id)
	}
	return rec, err
}

// Await returns a run when it is over, or its current state when ctx ends.
func (c *Store) Await(ctx context.Context, owner, id string) (Run, error) {
	for {
		news := c.changes()
		run, err := c.GetRun(owner, id)
		if err != nil || run.State.Over() {
			return run, err
		}
		select {
		case <-news:
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

// maxPage bounds a list of runs, in bytes as stored in the ledger.
const maxPage = 8 << 20

// Runs lists an owner's runs, newest first, and reports whether there are more.
func (c *Store) Runs(owner string, f Filter) (list []Run, more bool, err error) {
	before := ""
	if f.After != "" {
		if !proto.ValidID(runPrefix, f.After) {
			return nil, false, invalid("after", "after: %.80q is not a run ID", f.After)
		}
		before = owner + "/" + f.After
	}
	size, most := 0, cmp.Or(f.Limit, 20)
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return tx.ScanBack(bucketRuns, owner+"/", before, func(_ string, data []byte) (bool, error) {
			var rec runRecord
			if err := json.Unmarshal(data, &rec); err != nil {
				return false, err
			}
			if f.Tool != "" && f.Tool != rec.Tool && f.Tool != rec.ToolID || f.State != "" && f.State != rec.State {
				return true, nil
			}
			if size += len(data); len(list) == most || size > maxPage && len(list) > 0 {
				more = true
				return false, nil
			}
			list = append(list, rec.Run)
			return true, nil
		})
	})
	return list, more, err
}

package e2b

import (
	"context"
	"errors"
	"net/http"

	"berth/proto"
	"berth/session"
)

// pause freezes a sandbox, or keeps only its files, until a client connects to it. It breaks off the requests to it.
func (e *Edge) pause(c *call) (any, error) {
	var ask struct {
		Memory *bool `json:"memory"`
	}
	if err := c.read(&ask); err != nil {
		return nil, err
	}
	s, err := e.use(c, running)
	if err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	defer e.streams.leave(ctx, s.ID())()
	if ask.Memory != nil && !*ask.Memory {
		// A lease that ends with a stop now, and that nothing but a connect begins anew.
		var now int64
		_, err := s.Change(ctx, proto.ChangeContainer{Lease: proto.LeaseRequest{Mode: proto.LeaseAbsolute,
			AtEnd: proto.LeaseStop, EndsInSeconds: &now}})
		return nil, err
	}
	if err := s.Start(ctx); err != nil { // it may be stopped, since it had no processes
		return nil, err
	}
	err = s.Pause(ctx)
	if proto.CodeOf(err) == proto.Conflict { // clients take 409 for "paused already"
		return nil, proto.Errorf(proto.Unavailable, "", c.asked, "sandbox %.80q is in use: files are on their way; "+
			"try again", c.asked)
	}
	return nil, err
}

// maxForks is how many copies one request may ask for, as in the hosted service.
const maxForks = 20

// A forked is one copy of a sandbox.
type forked struct {
	Sandbox sandboxInfo `json:"sandbox"`
}

// fork makes copies of a sandbox with its files, without its processes. It makes all of them or none.
func (e *Edge) fork(c *call) (any, error) {
	var ask struct {
		Count   *int   `json:"count"`
		Timeout *int64 `json:"timeout"`
	}
	if err := c.read(&ask); err != nil {
		return nil, err
	}
	count := 1
	if ask.Count != nil {
		count = *ask.Count
	}
	if count < 1 || count > maxForks {
		return nil, proto.Invalid("count", "count must be from 1 to %d", maxForks)
	}
	seconds, err := leaseSeconds(ask.Timeout, shortLease)
	if err != nil {
		return nil, err
	}
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	ctx := c.r.Context()
	forks, err := s.Fork(ctx, count)
	if err != nil {
		return nil, err
	}
	out := make([]forked, 0, count)
	for _, f := range forks {
		if err := e.settle(ctx, s, f, max(seconds, 1)); err != nil {
			for _, f := range forks {
				err = errors.Join(err, e.cfg.Sessions.Delete(context.WithoutCancel(ctx), c.owner, f.ID(), false))
			}
			return nil, err
		}
		out = append(out, forked{e.describe(c, f)})
	}
	c.status = http.StatusCreated
	return out, nil
}

// settle gives a copy its lease, and the public ports of what it is a copy of.
func (e *Edge) settle(ctx context.Context, s, fork *session.Session, seconds int64) error {
	info := s.Info()
	req := proto.ChangeContainer{Lease: proto.LeaseRequest{Mode: proto.LeaseAbsolute, AtEnd: settingsOf(info).atEnd,
		EndsInSeconds: &seconds}}
	if e.cfg.Apps == nil {
		_, err := fork.Change(ctx, req)
		return err
	}
	req.PublicPorts = &info.PublicPorts
	_, err := e.cfg.Apps.Change(ctx, fork, req)
	return err
}

// A snapshotInfo is a snapshot, which is also the template of new sandboxes.
type snapshotInfo struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

func snapshotOf(s proto.Snapshot) snapshotInfo {
	out := snapshotInfo{s.ID, []string{}}
	if s.Name != "" {
		out.Names = append(out.Names, s.Name)
	}
	return out
}

// takeSnapshot keeps the files of a sandbox. Its processes cannot be kept.
func (e *Edge) takeSnapshot(c *call) (any, error) {
	var ask struct {
		Name   string `json:"name"`
		Memory *bool  `json:"memory"`
	}
	if err := c.read(&ask); err != nil {
		return nil, err
	}
	if ask.Memory != nil && *ask.Memory {
		return nil, coded{"snapshot_memory_unsupported", proto.Invalid("memory", "a snapshot has files alone; leave "+
			"memory out, or set it to false")}
	}
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	snap, err := s.Snapshot(c.r.Context(), proto.CreateSnapshot{Name: ask.Name})
	if proto.CodeOf(err) == proto.Unsupported {
		return nil, coded{"snapshot_filesystem_only_unsupported_node", proto.Errorf(proto.Conflict, "", "", "%s",
			proto.AsError(err).Message)}
	}
	if err != nil {
		return nil, err
	}
	c.status = http.StatusCreated
	return snapshotOf(snap), nil
}

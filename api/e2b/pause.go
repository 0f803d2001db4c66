package e2b

import (
	"net/http"

	"berth/proto"
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
	e.streams.breakOff(ctx, s.ID())
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

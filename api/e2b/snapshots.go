package e2b

import (
	"berth/proto"
	"berth/session"
)

// listSnapshots lists snapshots in pages. X-Next-Token begins the next page.
func (e *Edge) listSnapshots(c *call) (any, error) {
	limit, err := c.whole("limit", maxPage, 1, maxPage)
	if err != nil {
		return nil, err
	}
	f := session.SnapshotFilter{After: c.query.Get("nextToken"), Limit: int(limit)}
	if f.After != "" && !proto.ValidID(proto.SnapshotPrefix, f.After) {
		return nil, proto.Invalid("nextToken", "nextToken is not the X-Next-Token of an answer")
	}
	out := []snapshotInfo{}
	if id := c.query.Get("sandboxID"); id != "" {
		if f.Container = containerID(id); f.Container == "" {
			return out, nil
		}
	}
	name := c.query.Get("name")
	page, more, err := e.cfg.Sessions.Snapshots().List(c.owner, f)
	if err != nil {
		return nil, err
	}
	for _, s := range page {
		if name == "" || s.Name == name {
			out = append(out, snapshotOf(s))
		}
	}
	if more {
		c.w.Header().Set("X-Next-Token", page[len(page)-1].ID)
	}
	return out, nil
}

package e2b

import (
	"time"

	"berth/api"
	"berth/api/e2b/usage"
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

// deleteTemplate deletes a snapshot. Images are the operator's.
func (e *Edge) deleteTemplate(c *call) (any, error) {
	ref := c.r.PathValue("template")
	api.Note(c.r.Context(), ref)
	_, err := e.cfg.Sessions.DeleteSnapshot(c.r.Context(), c.owner, ref)
	return nil, err
}

// A template is an image.
type template struct {
	TemplateID  string         `json:"templateID"`
	BuildID     string         `json:"buildID"`
	CPUCount    int64          `json:"cpuCount"`
	MemoryMB    int64          `json:"memoryMB"`
	DiskSizeMB  int64          `json:"diskSizeMB"`
	Public      bool           `json:"public"`
	Aliases     []string       `json:"aliases"`
	Names       []string       `json:"names"`
	CreatedAt   time.Time      `json:"createdAt"`
	UpdatedAt   time.Time      `json:"updatedAt"`
	CreatedBy   map[string]any `json:"createdBy"`
	LastSpawned *time.Time     `json:"lastSpawnedAt"`
	SpawnCount  int64          `json:"spawnCount"`
	BuildCount  int64          `json:"buildCount"`
	EnvdVersion string         `json:"envdVersion"`
	BuildStatus string         `json:"buildStatus"`
}

func (e *Edge) listTemplates(c *call) (any, error) {
	list, err := e.cfg.Images.List(c.r.Context())
	out := make([]template, 0, len(list))
	limits := e.cfg.Limits.Or(session.DefaultLimits)
	for _, i := range list {
		out = append(out, template{TemplateID: i.Name, BuildID: i.Digest, Public: true, Aliases: []string{i.Name},
			Names: []string{i.Name}, CreatedAt: i.CreatedAt, UpdatedAt: i.CreatedAt, EnvdVersion: envdVersion,
			BuildCount: 1, BuildStatus: "ready", CPUCount: usage.Cores(limits.CPUs), MemoryMB: limits.MemoryBytes / mib,
			DiskSizeMB: limits.DiskBytes / mib})
	}
	return out, err
}

// findAlias answers whether there is an image or a snapshot of that name.
func (e *Edge) findAlias(c *call) (any, error) {
	alias := c.r.PathValue("alias")
	_, snapshot, err := e.template(c.r.Context(), c.owner, alias)
	if err != nil {
		return nil, err
	}
	return struct {
		ID     string `json:"templateID"`
		Public bool   `json:"public"`
	}{alias, snapshot.ID == ""}, nil
}

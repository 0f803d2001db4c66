package e2b

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/api"
	"berth/api/e2b/templates"
	"berth/api/e2b/usage"
	"berth/proto"
	"berth/session"
)

// A template is an image under one name, with all its tags.
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
	for _, i := range list {
		out = append(out, e.templateOf(i.Name, i))
	}
	return out, err
}

// templateOf describes an image by a name.
func (e *Edge) templateOf(name string, i proto.Image) template {
	most := e.cfg.Limits.Or(session.DefaultLimits)
	has := e.limits(templates.FactsOf(i)).Or(most)
	return template{TemplateID: name, BuildID: templates.BuildID(i), Public: true, Aliases: []string{name},
		Names: []string{name}, CreatedAt: i.CreatedAt, UpdatedAt: i.CreatedAt, EnvdVersion: envdVersion,
		BuildCount: 1, BuildStatus: "ready", CPUCount: usage.Cores(has.CPUs), MemoryMB: has.MemoryBytes / mib,
		DiskSizeMB: has.DiskBytes / mib}
}

// limits returns those of sandboxes of a template, within those of the daemon. What is 0 is the daemon's.
func (e *Edge) limits(f templates.Facts) (l proto.Limits) {
	most := e.cfg.Limits.Or(session.DefaultLimits)
	if f.CPUs > 0 && f.CPUs < most.CPUs {
		l.CPUs = f.CPUs
	}
	if f.MemoryBytes > 0 && f.MemoryBytes < most.MemoryBytes {
		l.MemoryBytes = f.MemoryBytes
	}
	return l
}

// findAlias answers whether there is an image or a snapshot of that name. A name without a tag is that of a template
// with any tag.
func (e *Edge) findAlias(c *call) (any, error) {
	alias := c.r.PathValue("alias")
	name, tag := templates.SplitTag(alias)
	of, err := e.template(c.r.Context(), c.owner, alias)
	if proto.CodeOf(err) == proto.NotFound && tag == "" && e.cfg.Builds != nil {
		if list, listErr := e.cfg.Builds.Tagged(c.r.Context(), name); listErr == nil && len(list) > 0 {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return struct {
		ID     string `json:"templateID"`
		Public bool   `json:"public"`
	}{name, of.snapshot.ID == ""}, nil
}

// tagged returns the images of the template in the path.
func (e *Edge) tagged(c *call) (list []templates.Tagged, err error) {
	if e.cfg.Builds == nil {
		return nil, notBuilt()
	}
	name, _ := templates.SplitTag(c.r.PathValue("template"))
	list, err = e.cfg.Builds.Tagged(c.r.Context(), name)
	if err == nil && len(list) == 0 {
		err = proto.Errorf(proto.NotFound, "", name, "template %.80q was not found", name)
	}
	return list, err
}

// A builtTemplate is a template with the builds that its tags lead to.
type builtTemplate struct {
	template
	Builds []builtImage `json:"builds"`
}

type builtImage struct {
	BuildID     string    `json:"buildID"`
	Status      string    `json:"status"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	FinishedAt  time.Time `json:"finishedAt"`
	CPUCount    int64     `json:"cpuCount"`
	MemoryMB    int64     `json:"memoryMB"`
	DiskSizeMB  int64     `json:"diskSizeMB"`
	EnvdVersion string    `json:"envdVersion"`
}

func (e *Edge) getTemplate(c *call) (any, error) {
	list, err := e.tagged(c)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b templates.Tagged) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.Tag, b.Tag))
	})
	name, _ := templates.SplitTag(list[0].Name)
	out := builtTemplate{template: e.templateOf(name, list[0].Image)}
	for _, i := range list {
		t := e.templateOf(name, i.Image)
		if !slices.ContainsFunc(out.Builds, func(b builtImage) bool { return b.BuildID == t.BuildID }) {
			out.Builds = append(out.Builds, builtImage{t.BuildID, t.BuildStatus, t.CreatedAt, t.UpdatedAt, t.UpdatedAt,
				t.CPUCount, t.MemoryMB, t.DiskSizeMB, envdVersion})
		}
	}
	out.BuildCount = int64(len(out.Builds))
	return out, nil
}

// A tag is a name of a build within its template.
type tag struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

// listTags lists the tags of a template. Its path has a wildcard, since a template may have any name.
func (e *Edge) listTags(c *call) (any, error) {
	if part := c.r.PathValue("part"); part != "tags" {
		return nil, proto.Errorf(proto.NotFound, "", part, "a template has no %.80q", part)
	}
	list, err := e.tagged(c)
	out := make([]tag, 0, len(list))
	for _, i := range list {
		out = append(out, tag{i.Tag, templates.BuildID(i.Image), i.CreatedAt})
	}
	return out, err
}

// builds returns the builds of templates for a caller who may have images built.
func (e *Edge) builds(c *call) (*templates.Templates, error) {
	switch {
	case e.cfg.Builds == nil:
		return nil, notBuilt()
	case !c.admin:
		return nil, proto.Errorf(proto.PermissionDenied, "", "", "Templates are images of the daemon; building, "+
			"tagging and deleting them needs an admin's API key, and this one is not.")
	}
	return e.cfg.Builds, nil
}

// buildsFor reads a request's body into ask, and then returns the builds: a malformed body is refused in any case.
func (e *Edge) buildsFor(c *call, ask any) (*templates.Templates, error) {
	if err := c.read(ask); err != nil {
		return nil, err
	}
	return e.builds(c)
}

func notBuilt() error {
	return proto.Errorf(proto.Unsupported, "", "", "this daemon builds no templates; import an image with berth image "+
		"import NAME, and create with templateID NAME")
}

// deleteTemplate deletes a snapshot or a template. Other images are the operator's.
func (e *Edge) deleteTemplate(c *call) (any, error) {
	ref := c.r.PathValue("template")
	api.Note(c.r.Context(), ref)
	_, err := e.cfg.Sessions.DeleteSnapshot(c.r.Context(), c.owner, ref)
	if proto.CodeOf(err) != proto.NotFound || e.cfg.Builds == nil || !c.admin {
		return nil, err
	}
	ok, removeErr := e.cfg.Builds.Remove(c.r.Context(), c.owner, ref)
	if ok || removeErr != nil {
		err = removeErr
	}
	return nil, err
}

// A tagging names tags of a template.
type tagging struct {
	Target string   `json:"target"` // to add
	Name   string   `json:"name"`   // to remove
	Tags   []string `json:"tags"`
}

func (e *Edge) addTags(c *call) (any, error) {
	var ask tagging
	b, err := e.buildsFor(c, &ask)
	if err != nil {
		return nil, err
	}
	api.Note(c.r.Context(), ask.Target)
	img, name, err := b.AddTags(c.r.Context(), c.owner, ask.Target, ask.Tags)
	if err != nil {
		return nil, err
	}
	c.status = http.StatusCreated
	return struct {
		Tags    []string `json:"tags"`
		BuildID string   `json:"buildID"`
	}{name.Tags, templates.BuildID(img)}, nil
}

func (e *Edge) removeTags(c *call) (any, error) {
	var ask tagging
	b, err := e.buildsFor(c, &ask)
	if err != nil {
		return nil, err
	}
	api.Note(c.r.Context(), ask.Name)
	return nil, b.RemoveTags(c.r.Context(), c.owner, ask.Name, ask.Tags)
}

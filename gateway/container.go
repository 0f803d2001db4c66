package gateway

import (
	"context"
	"encoding/json"

	"berth/proto"
)

// A turnContainer is the container of a turn.
type turnContainer struct {
	c       Container       // nil: the turn has not needed one yet
	created bool            // created for this turn
	told    bool            // the client was told its ID
	skills  json.RawMessage // mounted skills with their versions; nil: none were requested
}

// ref returns the reference to the container for answers and errors, or nil if there is none.
func (tc *turnContainer) ref() *proto.ContainerRef {
	if tc.c == nil {
		return nil
	}
	ref := tc.c.Ref()
	return &ref
}

// prepareContainer finds the container that the turn begins with, and puts skills and files into it. It creates a
// container only if there is something to put into it.
func (t *turn) prepareContainer(ctx context.Context) (o Opening, err error) {
	if err := t.findContainer(); err != nil {
		return o, err
	}
	if refs := t.request.Skills; len(refs) > 0 {
		// Resolve before creating a container: a skill that does not exist is an error of the request.
		if o.Skills, err = t.g.ResolveSkills(ctx, t.request.Owner, refs); err != nil {
			return o, err
		}
		c, err := t.ensureContainer(ctx)
		if err != nil {
			return o, err
		}
		mounted, err := c.MountSkills(ctx, refs)
		if err != nil {
			return o, err
		}
		if t.container.skills, err = json.Marshal(mounted); err != nil {
			return o, err
		}
	}
	o.Paths, err = t.provisionFiles(ctx)
	return o, err
}

// findContainer sets the container that the turn begins with. A retry keeps the container that an earlier attempt at
// the turn has created: the client does not know that container, so each retry would leak one. If it is gone or has
// expired, a new one may be created.
func (t *turn) findContainer() error {
	tc, containers, owner := &t.container, t.g.cfg.Containers, t.request.Owner
	if tc.c != nil {
		if _, err := containers.Find(owner, tc.c.Ref().ID); err == nil {
			return nil
		}
		if tc.created && !tc.told {
			t.g.deleteContainer(tc.c)
		}
	}
	tc.c, tc.created, tc.skills = nil, false, nil
	if rec := t.journal.saved; rec != nil && rec.Container != "" { // an earlier daemon has created or found it
		c, err := containers.Find(owner, rec.Container)
		if c == nil {
			return err
		}
		tc.c, tc.created, tc.skills = c, rec.Made, rec.Skills
		return nil
	}
	if t.request.Container == "" {
		return nil
	}
	c, err := t.g.FindContainer(owner, t.request.Container)
	if err != nil {
		return err
	}
	tc.c = c
	return nil
}

// FindContainer returns the container that a request names. Its error has the code that clients expect.
func (g *Gateway) FindContainer(owner, id string) (Container, error) {
	c, err := g.cfg.Containers.Find(owner, id)
	if err == nil {
		return c, nil
	}
	switch e := proto.AsError(err); e.Code {
	case proto.NotFound:
		return nil, &Refusal{"container_not_found", e}
	case proto.Expired:
		return nil, &Refusal{"container_expired", e}
	}
	return nil, err
}

// ensureContainer returns the container, and creates it if there is none.
func (t *turn) ensureContainer(ctx context.Context) (Container, error) {
	if t.container.c != nil {
		return t.container.c, nil
	}
	c, err := t.g.cfg.Containers.Create(ctx, t.request.Owner)
	if err != nil {
		return nil, err
	}
	t.container.c, t.container.created = c, true
	return c, nil
}

// deleteContainer deletes a container whose ID the client was never told.
func (g *Gateway) deleteContainer(c Container) {
	err := c.Delete(context.Background())
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		g.cfg.Log.Warn("deleting the container of a turn that was given up; it is deleted when it expires", "container",
			c.Ref().ID, "error", err)
	}
}

// provisionFiles puts the files of the request into the container, and returns their paths there by ID. Current files
// must exist. It skips older files that were deleted since.
func (t *turn) provisionFiles(ctx context.Context) (paths map[string]string, err error) {
	if len(t.request.Files) == 0 {
		return nil, nil
	}
	var stored []string
	for _, f := range t.request.Files {
		info, err := t.g.cfg.Files.Get(ctx, t.request.Owner, f.ID)
		if err == nil && info.ExpiresAt != nil && !info.ExpiresAt.After(t.progress.began) {
			err = proto.Errorf(proto.Expired, "", f.ID, "File `%s` has expired; upload it again.", f.ID)
		}
		switch {
		case err == nil:
			stored = append(stored, f.ID)
		case f.Current:
			return nil, err
		}
	}
	c, err := t.ensureContainer(ctx)
	if err != nil {
		return nil, err
	}
	return c.PutFiles(ctx, stored)
}

// ResolveSkills finds the skills of a request.
func (g *Gateway) ResolveSkills(ctx context.Context, owner string, refs []proto.SkillRef) ([]Skill, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	return g.cfg.Containers.ResolveSkills(ctx, owner, refs)
}

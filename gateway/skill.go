package gateway

import (
	"context"
	"fmt"
	"path"
	"strings"
)

// skillsDir is where containers have skills.
const skillsDir = "/skills"

// describe has the tools say which skills a request gives. Those that are not there are an error before anything is
// made.
func (g *Gateway) describe(ctx context.Context, q *query) error {
	if len(q.box.Skills) == 0 {
		q.tools.describe("")
		return nil
	}
	list, err := g.cfg.Skills.Resolve(ctx, q.Owner, q.box.Skills)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("\n\nThe container has skills: directories with instructions, scripts and other files for certain " +
		"work. Before such work, read the skill's SKILL.md.\n")
	for _, v := range list {
		fmt.Fprintf(&b, "\n%s: %s", path.Join(skillsDir, v.Name, "SKILL.md"), v.Description)
	}
	q.tools.describe(b.String())
	return nil
}

// mount puts the skills of a request into the container.
func (t *turn) mount(ctx context.Context) error {
	if len(t.q.box.Skills) == 0 {
		return nil
	}
	s, err := t.need(ctx)
	if err != nil {
		return err
	}
	refs, err := t.g.cfg.Skills.Mount(ctx, s, t.q.Owner, t.q.box.Skills)
	if err != nil {
		return err
	}
	t.box.skills = mustJSON(refs)
	return nil
}

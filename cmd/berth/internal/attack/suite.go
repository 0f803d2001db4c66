package attack

import (
	"context"
	"slices"
	"strings"

	"berth/cmd/berth/internal/client"
	"berth/proto"
)

// Options say what to run.
type Options struct {
	Host, Key string
	Classes   []proto.RuntimeClass // for cases that are about isolation; empty is those that the daemon offers
	Only      []string             // names, or the beginnings of names; empty is all
	Quick     bool                 // leave out what takes long
}

// Run tries every case that o asks for, one after the other, and reports each when it is over. The error means that it
// could not go on, not that something got through.
func Run(ctx context.Context, o Options, report func(Report)) error {
	c, err := client.New(client.Config{Host: o.Host, Key: o.Key, Agent: "berth-attack"})
	if err != nil {
		return err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	if len(o.Classes) == 0 {
		o.Classes = info.RuntimeClasses
	}
	for _, k := range Cases() {
		if !o.wants(k) {
			continue
		}
		for _, class := range o.classesOf(k) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			report(try(ctx, k, &Target{Client: c, Host: o.Host, Key: o.Key, Class: class}))
		}
	}
	return nil
}

// wants reports whether a case is asked for.
func (o Options) wants(c Case) bool {
	if o.Quick && c.Slow {
		return false
	}
	return len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(p string) bool { return strings.HasPrefix(c.Name, p) })
}

// classesOf are the runtime classes to try a case in; "" is the daemon's default.
func (o Options) classesOf(c Case) []proto.RuntimeClass {
	if c.Inside {
		return o.Classes
	}
	return []proto.RuntimeClass{""}
}

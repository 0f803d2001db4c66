package attack

import (
	"context"
	"errors"
	"slices"
	"strings"

	"berth/client"
	"berth/proto"
)

// Options say what to run, against whom.
type Options struct {
	Client  *client.Client       // of the daemon; with an administrator's key, or some cases cannot be tried
	Classes []proto.RuntimeClass // for cases that are about isolation; empty is those that the daemon offers
	Only    []string             // names, or the beginnings of names; empty is all
	Quick   bool                 // leave out what is slow, and race fewer rounds
	Rounds  int                  // of each race; 0 is 1,000,000, or 20,000 with Quick
	Program string               // that is copied into containers as their probe; "" is this very program. It must be static
	Cases   []Case               // nil is all of them
	Begin   func(Step)           // is told of each case before it is tried; may be nil
}

// How often a race is run; one of two threads swaps what the other one opens.
// A race that opens once in ten thousand swaps is found by a million with near certainty.
const (
	fullRounds  = 1_000_000
	quickRounds = 20_000
)

// A Step is one case in one runtime class, and where in the run it stands.
type Step struct {
	Case
	Class proto.RuntimeClass
	N, Of int // it is the N-th, from 1
}

// ErrNothing says that Options.Only fits no case.
var ErrNothing = errors.New("no attack has a name that begins so")

// Run tries every case that o asks for, one after the other, and reports each when it is over. The error means that it
// could not go on, not that something got through. A case that ctx ends is not reported.
// One after the other, since many cases measure time or memory of what they would share.
func Run(ctx context.Context, o Options, report func(Report)) error {
	info, err := o.Client.Info(ctx)
	if err != nil {
		return err
	}
	other := &tenant{admin: o.Client}
	defer other.leave()
	steps := o.Plan(info.RuntimeClasses)
	if len(steps) == 0 {
		return ErrNothing
	}
	for _, s := range steps {
		if o.Begin != nil {
			o.Begin(s)
		}
		// Each case gets a target of its own, so that what one leaves behind is tidied up under its name.
		r := try(ctx, s.Case, newTarget(o, s.Class, other))
		if ctx.Err() != nil {
			return ctx.Err() // what the case says then is about the interruption
		}
		report(r)
	}
	return nil
}

// Plan is what Run would try at a daemon that offers these runtime classes, in its order.
// Cases about isolation are tried in each class: the two have nothing in common but what they promise.
func (o Options) Plan(offered []proto.RuntimeClass) []Step {
	if len(o.Classes) > 0 {
		offered = o.Classes
	}
	cases := o.Cases
	if cases == nil {
		cases = Cases()
	}
	var steps []Step
	for _, c := range cases {
		if !o.wants(c) {
			continue
		}
		classes := offered
		// The class would make no difference to what is about the API alone.
		if !c.Inside {
			classes = []proto.RuntimeClass{""} // the daemon's default
		}
		for _, class := range classes {
			steps = append(steps, Step{Case: c, Class: class})
		}
	}
	for i := range steps {
		steps[i].N, steps[i].Of = i+1, len(steps)
	}
	return steps
}

// wants reports whether a case is asked for.
func (o Options) wants(c Case) bool {
	if o.Quick && c.Slow {
		return false
	}
	return len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(p string) bool { return strings.HasPrefix(c.Name, p) })
}

// rounds is how often a race is run.
func (o Options) rounds() int {
	switch {
	case o.Rounds > 0:
		return o.Rounds
	case o.Quick:
		return quickRounds
	}
	return fullRounds
}

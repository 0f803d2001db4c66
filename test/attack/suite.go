package attack

import (
	"context"
	"errors"
	"slices"
	"strings"

	"berth/client"
	"berth/proto"
)

// Options selects the cases and the daemon.
type Options struct {
	Client  *client.Client       // of the daemon; some cases need an administrator's key
	Classes []proto.RuntimeClass // for cases about isolation; empty selects those that the daemon offers
	Only    []string             // names or prefixes of names; empty selects all
	Quick   bool                 // skip slow cases, and use fewer rounds for races
	Rounds  int                  // of each race; 0 is 1,000,000, or 20,000 with Quick
	Program string               // copied into containers as the probe, must be static; "" is this program
	Cases   []Case               // nil is all of them
	Begin   func(Step)           // called before each case; may be nil
}

// Rounds of a race, in which one thread swaps what another one opens. An attack that succeeds once in ten thousand
// swaps is found with near certainty in a million.
const (
	fullRounds  = 1_000_000
	quickRounds = 20_000
)

// A Step is one case in one runtime class, and its position in the run.
type Step struct {
	Case
	Class proto.RuntimeClass
	N, Of int // position, from 1, and total
}

// ErrNothing means that Options.Only matches no case.
var ErrNothing = errors.New("no attack has a name that begins so")

// Run runs the selected cases one after the other and reports each when it is over. It returns an error if it cannot
// continue, not if an attack succeeds. It does not report a case that ctx interrupts. Cases do not run concurrently,
// since many measure the time or memory of shared resources.
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
		// Each case gets its own target, so that what it leaves behind is removed under its name.
		r := try(ctx, s.Case, newTarget(o, s.Class, other))
		if ctx.Err() != nil {
			return ctx.Err() // the result is only about the interruption
		}
		report(r)
	}
	return nil
}

// Plan returns what Run would try against a daemon that offers these runtime classes, in order. Cases about isolation
// run in each class, since the classes have separate implementations.
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
		// The class makes no difference for cases that are only about the API.
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

// wants reports whether a case is selected.
func (o Options) wants(c Case) bool {
	if o.Quick && c.Slow {
		return false
	}
	return len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(p string) bool { return strings.HasPrefix(c.Name, p) })
}

// rounds returns the number of rounds of a race.
func (o Options) rounds() int {
	switch {
	case o.Rounds > 0:
		return o.Rounds
	case o.Quick:
		return quickRounds
	}
	return fullRounds
}

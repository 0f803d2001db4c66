// Package attack tries to break a running daemon and its containers. It attacks from the outside over the API, and
// from the inside of a container that the attacker controls.
//
// A Case is one attack. It states what it tries, what should happen, and what happened. A case that could not be
// tried does not count as held. `berth attack` runs the same cases on an operator's host as the tests of this
// package. An action inside a container that needs more than a line of shell is a probe: a function of this program,
// which is copied into the container.
package attack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/proto"
)

// A Case is one attack.
type Case struct {
	Group  int    // in the list in docs/security.md, 1 to 52
	Name   string // area/what, such as "paths/link-to-shadow"; unique
	Tries  string // what it tries, in one sentence
	Wants  string // what should happen, in one sentence
	Inside bool   // tests the isolation of a container, so it runs in each runtime class
	Slow   bool   // takes more than ten seconds even with few rounds; Options.Quick skips it
	Alone  bool   // must not run beside other cases: it exhausts shared resources or compares times

	// Run tries the attack and describes briefly what happened. A Breach error means that the attack succeeded. A
	// NotHere error means that it does not apply to this host. Any other error means that it could not be tried.
	Run func(ctx context.Context, t *Target) (happened string, err error)
}

// A Breach is the error of an attack that succeeded.
type Breach struct{ Happened string }

// Error returns what happened, which is all that a reader of the report needs.
func (b *Breach) Error() string { return b.Happened }

// Breached returns a Breach.
func Breached(format string, args ...any) error { return &Breach{fmt.Sprintf(format, args...)} }

// NotHere is the error of a case that does not apply to this host or this runtime class.
type NotHere struct{ Why string }

// Error makes it an error, so that a case can return it from anywhere. It is not a failure.
func (n *NotHere) Error() string { return n.Why }

// A Verdict is the result of a case.
type Verdict string

// The verdicts.
const (
	Held     Verdict = "held"     // what should happen happened
	Through  Verdict = "through"  // the attack succeeded
	Untried  Verdict = "untried"  // it could not be tried; nothing is known
	Unneeded Verdict = "unneeded" // it does not apply here
)

// A Report is the result of one case in one runtime class.
type Report struct {
	Group    int                `json:"group"`
	Name     string             `json:"name"`
	Class    proto.RuntimeClass `json:"runtime_class,omitempty"` // for cases about the isolation of a container
	Tries    string             `json:"tries"`
	Wants    string             `json:"wants"`
	Happened string             `json:"happened"`
	Verdict  Verdict            `json:"verdict"`
	Seconds  float64            `json:"seconds"`
}

// registry has all cases; each file of this package adds its own.
var registry []Case

// register adds cases. It panics if a name is used twice, which a test would find.
func register(cases ...Case) struct{} {
	for _, c := range cases {
		if slices.ContainsFunc(registry, func(o Case) bool { return o.Name == c.Name }) {
			panic("two attacks are called " + c.Name)
		}
		registry = append(registry, c)
	}
	return struct{}{}
}

// Cases returns all attacks, ordered by group and name.
func Cases() []Case {
	all := slices.Clone(registry)
	slices.SortFunc(all, func(a, b Case) int {
		if a.Group != b.Group {
			return a.Group - b.Group
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// caseTimeout limits the time of one case. A slow case may take this long.
const caseTimeout = 10 * time.Minute

// try runs one case against t.
func try(ctx context.Context, c Case, t *Target) Report {
	r := Report{Group: c.Group, Name: c.Name, Class: t.Class, Tries: c.Tries, Wants: c.Wants}
	caseCtx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	began := time.Now()
	happened, err := c.Run(caseCtx, t)
	r.judge(happened, err)
	r.aftermath(ctx, t)
	r.Seconds = time.Since(began).Seconds()
	return r
}

// judge converts the results of Case.Run to a verdict.
func (r *Report) judge(happened string, err error) {
	var breach *Breach
	var notHere *NotHere
	switch {
	case err == nil && happened == "":
		r.Verdict, r.Happened = Untried, "it does not say what happened" // it is unknown whether it tried anything
	case err == nil:
		r.Verdict, r.Happened = Held, happened
	case errors.As(err, &breach):
		r.Verdict, r.Happened = Through, breach.Happened
	case errors.As(err, &notHere):
		r.Verdict, r.Happened = Unneeded, notHere.Why
	default:
		r.Verdict, r.Happened = Untried, err.Error()
	}
}

// aftermath removes what the case has created and checks that the daemon still answers. An attack that is refused but
// stops the daemon has succeeded.
func (r *Report) aftermath(ctx context.Context, t *Target) {
	err := t.tidy()
	if err != nil {
		err = fmt.Errorf("what it made could not be removed: %w", err)
	} else if _, err = t.Info(ctx); err != nil {
		err = fmt.Errorf("the daemon does not answer any more: %w", err)
	}
	if err != nil && ctx.Err() == nil && r.Verdict != Through {
		r.Verdict, r.Happened = Through, err.Error()
	}
}

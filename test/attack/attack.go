// Package attack tries to break a running daemon, and the containers it makes, from where an attacker stands: from
// outside over its API, and from inside a container of the attacker's own.
//
// A Case is one attack. It says what it tries, what should happen, and what happened; a case that could not be tried
// counts as not held. The same cases are what `berth attack` runs on an operator's host and what the package's tests
// run. What has to be done inside a container and is more than a line of shell is a probe: a function of this
// program, which is copied into the container for that.
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
	Group  int    // of the list in docs/security.md, 1 to 52
	Name   string // area/what, such as "paths/link-to-shadow"; no two cases share one
	Tries  string // what it tries, in a sentence
	Wants  string // what should happen, in a sentence
	Inside bool   // is about the isolation of a container, so it is tried in each runtime class
	Slow   bool   // takes more than ten seconds even with few rounds; left out by Options.Quick
	Alone  bool   // must not share the machine with other cases: it uses up what they need, or compares times

	// Run tries it. It says in a few words what happened. A Breach error means that the attack got through, a NotHere
	// error that it makes no sense on this host; any other that it could not be tried.
	Run func(ctx context.Context, t *Target) (happened string, err error)
}

// A Breach is an attack that got through.
type Breach struct{ Happened string }

// A breach is told by what happened, which is all that a reader of the report needs.
func (b *Breach) Error() string { return b.Happened }

// Breached says what got through.
func Breached(format string, args ...any) error { return &Breach{fmt.Sprintf(format, args...)} }

// NotHere is why a case does not apply to this host or this runtime class.
type NotHere struct{ Why string }

// It is an error so that a case can return it from anywhere; it is no failure.
func (n *NotHere) Error() string { return n.Why }

// A Verdict is how a case ended.
type Verdict string

// The verdicts.
const (
	Held     Verdict = "held"     // what should happen did
	Through  Verdict = "through"  // the attack succeeded
	Untried  Verdict = "untried"  // it could not be tried; nothing is known
	Unneeded Verdict = "unneeded" // it does not apply here
)

// A Report is the outcome of one case in one runtime class.
type Report struct {
	Group    int                `json:"group"`
	Name     string             `json:"name"`
	Class    proto.RuntimeClass `json:"runtime_class,omitempty"` // of cases that are about a container's isolation
	Tries    string             `json:"tries"`
	Wants    string             `json:"wants"`
	Happened string             `json:"happened"`
	Verdict  Verdict            `json:"verdict"`
	Seconds  float64            `json:"seconds"`
}

// registry is every case; each file of this package adds its own.
var registry []Case

// register adds cases. It panics if a name is taken, which a test would find.
func register(cases ...Case) struct{} {
	for _, c := range cases {
		if slices.ContainsFunc(registry, func(o Case) bool { return o.Name == c.Name }) {
			panic("two attacks are called " + c.Name)
		}
		registry = append(registry, c)
	}
	return struct{}{}
}

// Cases is every attack, by group and name.
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

// caseTimeout bounds one case; a slow one may take this long.
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

// judge turns what a case returned into a verdict.
func (r *Report) judge(happened string, err error) {
	var breach *Breach
	var notHere *NotHere
	switch {
	case err == nil && happened == "":
		r.Verdict, r.Happened = Untried, "it does not say what happened" // so nobody can tell whether it tried
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

// aftermath removes what the case made and sees whether the daemon still answers: an attack that is refused and
// takes the daemon with it has succeeded.
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

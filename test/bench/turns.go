package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A turn is one participant of a row: what it does each round, and what that is worth.
type turn struct {
	name   string
	role   Role
	unit   string                      // "" is "ms"
	every  int                         // it takes part in each every-th round only; 0 is 1
	before func(context.Context) error // prepares; what it takes is not measured
	op     func(context.Context) (float64, error)
	after  func(context.Context) error // tidies up, also what failed; what it takes is not measured
	loud   bool                        // its failure ends the row, as its later rounds need it
}

// mostFailures is how many of ours end a row: what fails so often need not be measured on.
const mostFailures = 10

// warmUps is how many rounds come before those that count: they fill caches and open connections. Where rounds are
// long there is none.
func warmUps(rounds int) int { return min(2, rounds/3) }

// due says whether it takes part in a round. One of each second or fourth round would have the same order always, so
// every other time it is a round late.
func (t *turn) due(round int) bool {
	every, late := max(1, t.every), 0
	if every%2 == 0 {
		late = round / every % 2
	}
	return round <= 0 || round%every == late
}

// inTurns runs all participants round by round, and adds what they gave to the result. In every other round they come
// in reverse: what one leaves to be done after its answer falls into whichever is next. Turns must not rely on the
// one before. A comparator that fails is left out, and said to be missing.
func (b *bench) inTurns(ctx context.Context, res *Result, rounds int, turns []*turn) error {
	samples := make([][]float64, len(turns))
	measures := make([]Measure, len(turns))
	gone := make([]bool, len(turns))
	order := make([]int, len(turns))
	for i := range order {
		order[i] = i
	}
	for round := -warmUps(rounds); round < rounds; round++ {
		for _, i := range order {
			t := turns[i]
			if gone[i] || !t.due(round) {
				continue
			}
			v, err := t.once(ctx)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err == nil && round >= 0:
				samples[i] = append(samples[i], v)
			case err == nil:
			case t.role == Comparator:
				gone[i] = true
				res.Missing = append(res.Missing, Missing{t.name, err.Error()})
			case t.role == Floor || t.loud:
				return fmt.Errorf("%s: %w", t.name, err)
			default:
				if measures[i].Failures++; measures[i].Failure == "" {
					measures[i].Failure = err.Error()
				}
				if measures[i].Failures == mostFailures {
					return fmt.Errorf("%s failed %d times: %w", t.name, mostFailures, err)
				}
			}
		}
		slices.Reverse(order)
	}
	for i, t := range turns {
		m := &measures[i]
		if m.Name, m.Role, m.Unit = t.name, t.role, t.unit; m.Unit == "" {
			m.Unit = "ms"
		}
		if m.summarize(samples[i]); !gone[i] {
			res.Measures = append(res.Measures, *m)
		}
	}
	return nil
}

// once is one round of one participant, with the preparing and the tidying.
func (t *turn) once(ctx context.Context) (v float64, err error) {
	if t.before != nil {
		err = t.before(ctx)
	}
	if err == nil {
		v, err = t.op(ctx)
	}
	if t.after != nil {
		if aerr := t.after(ctx); err == nil {
			err = aerr
		}
	}
	return v, err
}

// timed is how long do takes, in milliseconds.
func timed(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return float64(time.Since(began)) / float64(time.Millisecond), err
}

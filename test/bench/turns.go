package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A turn is one participant of a row. It runs in each round and returns a value.
type turn struct {
	name   string
	role   Role
	unit   string                      // "" is "ms"
	every  int                         // takes part only in every n-th round; 0 is 1
	before func(context.Context) error // prepares; not measured
	op     func(context.Context) (float64, error)
	after  func(context.Context) error // cleans up, also after a failure; not measured
	loud   bool                        // a failure ends the row, since later rounds depend on it
}

// mostFailures is the number of failures of ours that ends a row.
const mostFailures = 10

// warmUps returns the number of rounds before those that count. They fill caches and open connections. A row with
// few, long rounds has none.
func warmUps(rounds int) int { return min(2, rounds/3) }

// due reports whether the turn takes part in a round. A turn of every second or fourth round would always run in the
// same order. So every other time it runs one round later.
func (t *turn) due(round int) bool {
	every, late := max(1, t.every), 0
	if every%2 == 0 {
		late = round / every % 2
	}
	return round <= 0 || round%every == late
}

// inTurns runs all participants round by round and adds their values to the result. Every other round runs them in
// reverse order, so that the work that one leaves behind affects different ones. Turns must not depend on the
// previous turn. A comparator that fails is left out and reported as missing.
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

// once runs one round of one participant, with preparation and cleanup.
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

// timed returns the duration of do, in milliseconds.
func timed(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return float64(time.Since(began)) / float64(time.Millisecond), err
}

package bench

import (
	"context"
	"fmt"
	"time"
)

// A turn is one participant of a row: what it does each round, and what that is worth.
type turn struct {
	name  string
	role  Role
	unit  string // "" is "ms"
	every int    // it takes part in each every-th round only; 0 is 1
	op    func(context.Context) (float64, error)
	after func(context.Context) error // tidies up; what it takes is not measured
	loud  bool                        // its failure ends the row, as later turns need it
}

// mostFailures is how many of ours end a row: what fails so often need not be measured on.
const mostFailures = 10

// inTurns runs all participants round by round, and adds what they gave to the result. Where rounds are
// short, two more come first and are not counted: they fill caches and open connections. A comparator that fails is left out, and said to be missing.
func (b *bench) inTurns(ctx context.Context, res *Result, rounds int, turns []*turn) error {
	samples := make([][]float64, len(turns))
	measures := make([]Measure, len(turns))
	gone := make([]bool, len(turns))
	warm := min(2, rounds/3)
	for round := -warm; round < rounds; round++ {
		for i, t := range turns {
			if gone[i] || round > 0 && round%max(1, t.every) != 0 {
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

// once is one round of one participant, with the tidying.
func (t *turn) once(ctx context.Context) (float64, error) {
	v, err := t.op(ctx)
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

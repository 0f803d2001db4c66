package bench

import (
	"context"
	"fmt"
	"time"
)

// stoppers are the flags of a daemon whose unused containers stop only when the bench starts a sweep.
var stoppers = []string{"--stop-idle-after", "1ms", "--sweep-every", "1h"}

// stopUnused has the daemon stop n unused containers.
func (d *daemon) stopUnused(ctx context.Context, n int) error {
	most := time.Now().Add(time.Minute)
	for left := n; left > 0; {
		counts, err := d.Sweep(ctx, false)
		if err != nil {
			return err
		}
		left -= counts["sessions"]["stopped"]
		if left > 0 && time.Now().After(most) {
			return fmt.Errorf("%d of %d containers were not stopped", left, n)
		}
	}
	return nil
}

// wakes are the containers of the row about waking.
var wakes = []struct {
	name  string
	write string  // what has written outside the workspace before it was stopped; "": nothing
	most  float64 // target of the median, in ms
}{
	{name: "a command that wakes", most: 5},
	{name: "a command that wakes over a layer", write: "echo written >/tmp/file", most: 40},
}

// wake measures the delay of the first command in a container that was stopped for lack of use: one with nothing
// written outside its workspace, which takes a sandbox from the pool, and one with a layer, which is started over it.
func (b *bench) wake(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx, append(b.poolFlags(2, 8), stoppers...)...)
	if err != nil {
		return err
	}
	var turns []*turn
	for i, w := range wakes {
		m, leave, err := d.one(ctx)
		if err != nil {
			return err
		}
		defer leave()
		if w.write != "" {
			if err := d.bash(ctx, m.id, w.write); err != nil {
				return err
			}
		}
		if i == 0 {
			turns = append(turns, &turn{name: "a command", role: Ours, op: func(ctx context.Context) (float64, error) {
				if err := d.bash(ctx, m.id, nothing); err != nil {
					return 0, err
				}
				return timed(func() error { return d.bash(ctx, m.id, nothing) })
			}})
		}
		turns = append(turns, &turn{name: w.name, role: Ours, op: func(ctx context.Context) (float64, error) {
			if err := d.stopUsed(ctx, m.id); err != nil {
				return 0, err
			}
			return timed(func() error { return d.bash(ctx, m.id, nothing) })
		}})
	}
	if err := b.inTurns(ctx, res, b.rounds(100), turns); err != nil {
		return err
	}
	for _, w := range wakes {
		res.median(w.name, atMost(w.most))
		res.against(w.name, lower, "a command")
		res.tail(w.name, lower)
	}
	return nil
}

// stopUsed uses a container, has it stopped, and waits until the pool is full.
func (d *daemon) stopUsed(ctx context.Context, id string) error {
	if err := d.bash(ctx, id, nothing); err != nil { // it may be stopped since its last turn
		return err
	}
	if err := d.stopUnused(ctx, 1); err != nil {
		return err
	}
	return d.filled(ctx, 1)
}

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

// wake measures the delay of the first command in a container that was stopped for lack of use: one with nothing
// written outside its workspace, which takes a sandbox from the pool, and one with a layer, which is started over it.
func (b *bench) wake(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx, append(b.poolFlags(2, 8), stoppers...)...)
	if err != nil {
		return err
	}
	clean, leaveClean, err := d.one(ctx)
	if err != nil {
		return err
	}
	defer leaveClean()
	dirty, leaveDirty, err := d.one(ctx)
	if err != nil {
		return err
	}
	defer leaveDirty()
	if err := d.bash(ctx, dirty.id, "echo written >/tmp/file"); err != nil {
		return err
	}
	wakes := func(id string) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			if err := d.bash(ctx, id, nothing); err != nil { // it may be stopped since its last turn
				return 0, err
			}
			if err := d.stopUnused(ctx, 1); err != nil {
				return 0, err
			}
			if err := d.filled(ctx, 1); err != nil {
				return 0, err
			}
			return timed(func() error { return d.bash(ctx, id, nothing) })
		}
	}
	turns := []*turn{
		{name: "a command", role: Ours, op: func(context.Context) (float64, error) {
			if err := d.bash(ctx, clean.id, nothing); err != nil {
				return 0, err
			}
			return timed(func() error { return d.bash(ctx, clean.id, nothing) })
		}},
		{name: "a command that wakes", role: Ours, op: wakes(clean.id)},
		{name: "a command that wakes over a layer", role: Ours, op: wakes(dirty.id)},
	}
	if err := b.inTurns(ctx, res, b.rounds(100), turns); err != nil {
		return err
	}
	for _, name := range []string{"a command that wakes", "a command that wakes over a layer"} {
		res.against(name, lower, "a command")
		res.tail(name, lower)
	}
	return nil
}

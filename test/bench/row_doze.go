package bench

import (
	"context"
	"fmt"
	"time"
)

// dozers are the flags of a daemon whose containers doze only when the bench starts a sweep.
var dozers = []string{"--doze-idle-after", "1ms", "--sweep-every", "1h"}

// fallAsleep is how long a guest may take from its answer until it dozes. There is no event for that.
const fallAsleep = 20 * time.Millisecond

// doze makes n unused containers doze.
func (d *daemon) doze(ctx context.Context, n int) error {
	most := time.Now().Add(time.Minute)
	for left := n; left > 0; {
		counts, err := d.Sweep(ctx, false)
		if err != nil {
			return err
		}
		left -= counts["sessions"]["dozing"]
		if left > 0 && time.Now().After(most) {
			return fmt.Errorf("%d of %d containers stay awake", left, n)
		}
	}
	time.Sleep(fallAsleep)
	return nil
}

// doze measures the delay of the first command in a dozing container.
func (b *bench) doze(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx, append(b.poolFlags(0, 0), dozers...)...)
	if err != nil {
		return err
	}
	m, leave, err := d.one(ctx)
	if err != nil {
		return err
	}
	defer leave()
	command := func() error { return d.bash(ctx, m.id, nothing) }
	turns := []*turn{
		{name: "a command", role: Ours, op: func(context.Context) (float64, error) { return timed(command) }},
		{name: "a command that wakes", role: Ours, op: func(ctx context.Context) (float64, error) {
			if err := d.doze(ctx, 1); err != nil {
				return 0, err
			}
			return timed(command)
		}},
	}
	if err := b.inTurns(ctx, res, b.rounds(100), turns); err != nil {
		return err
	}
	res.against("a command that wakes", lower, "a command")
	res.tail("a command that wakes", lower)
	return nil
}

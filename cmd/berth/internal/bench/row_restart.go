package bench

import (
	"context"
	"fmt"
)

// restart is how long nobody is served after the daemon was killed.
func (b *bench) restart(ctx context.Context, res *Result) error {
	n, rounds := 200, 3
	if b.Quick {
		n, rounds = 3, 1
	}
	b.stopOwn()
	few, err := b.private(ctx)
	if err != nil {
		return err
	}
	defer func() { few.stop() }()
	many, err := b.private(ctx)
	if err != nil {
		return err
	}
	defer func() { many.stop() }()
	one, err := few.live(ctx, 1)
	if err != nil {
		return err
	}
	all, err := many.live(ctx, n)
	if err != nil {
		return err
	}
	turns := []*turn{
		{name: "with one container", role: Ours, loud: true, op: func(ctx context.Context) (float64, error) { return b.again(ctx, few, one[0]) }},
		{name: fmt.Sprintf("with %d", n), role: Ours, loud: true, op: func(ctx context.Context) (float64, error) { return b.again(ctx, many, all[n/2]) },
			after: func(ctx context.Context) error {
				if err := each(ctx, n, hands, func(ctx context.Context, i int) error { return many.bash(ctx, all[i], nothing) }); err != nil {
					return fmt.Errorf("containers were lost: %w", err)
				}
				return nil
			}},
	}
	if err := b.inTurns(ctx, res, rounds, turns); err != nil {
		return err
	}
	res.against(fmt.Sprintf("with %d", n), atMost(2), "with one container")
	res.note("From the start of the daemon's program to the end of a first command; after each restart a command ran in every container, and none was lost.")
	return nil
}

// again kills a private daemon, starts it and runs a command in a container that lived through that.
func (b *bench) again(ctx context.Context, d *daemon, id string) (float64, error) {
	d.kill()
	return timed(func() error {
		if err := b.start(d); err != nil {
			return err
		}
		return d.bash(ctx, id, nothing)
	})
}

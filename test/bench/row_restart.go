package bench

import (
	"context"
	"fmt"
)

// restart measures the downtime after the daemon was killed.
func (b *bench) restart(ctx context.Context, res *Result) error {
	n, rounds := b.live(res, 200, 3, 4), 3
	if b.Quick {
		rounds = 1
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
		{name: "with one container", role: Ours, loud: true, op: func(ctx context.Context) (float64, error) {
			return b.again(ctx, few, one[0])
		}},
		{name: fmt.Sprintf("with %d", n), role: Ours, loud: true, op: func(ctx context.Context) (float64, error) {
			return b.again(ctx, many, all[n/2])
		},
			after: func(ctx context.Context) error {
				if err := each(ctx, n, hands, func(ctx context.Context, i int) error {
					return many.bash(ctx, all[i], nothing)
				}); err != nil {
					return fmt.Errorf("containers were lost: %w", err)
				}
				return nil
			}},
	}
	docker, leave, err := b.dockerRestart(ctx, res, n)
	if err != nil {
		return err
	}
	defer leave()
	turns = append(turns, docker...)
	if err := b.inTurns(ctx, res, rounds, turns); err != nil {
		return err
	}
	res.against(fmt.Sprintf("with %d", n), atMost(2), "with one container")
	for _, t := range docker {
		res.against(fmt.Sprintf("with %d", n), lower, t.name)
	}
	res.note("From the start of the daemon's program to the end of a first command; after each restart a command " +
		"ran in every container, and none was lost. Docker's daemon is not killed but asked to end, and its " +
		"containers go on.")
	return nil
}

// dockerRestart measures the same for docker with n containers, which leave removes. It returns no turns if docker is
// missing.
func (b *bench) dockerRestart(ctx context.Context, res *Result, n int) (turns []*turn, leave func(), err error) {
	c := b.other(ctx, res, liveDocker)
	if c == nil {
		return nil, func() {}, nil
	}
	b.say("  %d containers of docker's", n)
	ids, undo, err := c.many(ctx, n)
	leave = func() { _ = undo() } // otherwise they end with the comparator
	if err != nil {
		leave()
		return nil, nil, err
	}
	return []*turn{{name: fmt.Sprintf("%s, %d", liveDocker, n), role: Comparator, op: func(ctx context.Context) (
		float64, error) {
		c.down()
		return timed(func() error {
			if err := c.up(ctx); err != nil {
				return err
			}
			return c.do(ctx, c.exec(ids[n/2], "bash", "-c", nothing))
		})
	}}}, leave, nil
}

// again kills a private daemon, starts it, and runs a command in a container that has survived.
func (b *bench) again(ctx context.Context, d *daemon, id string) (float64, error) {
	d.kill()
	return timed(func() error {
		if err := b.start(d); err != nil {
			return err
		}
		return d.bash(ctx, id, nothing)
	})
}

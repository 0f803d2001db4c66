package bench

import (
	"context"
	"fmt"
	"time"
)

// fork100 measures 100 forks that each run Python with numpy, beside 100 plain creates and 100 containers of docker's
// that do.
func (b *bench) fork100(ctx context.Context, res *Result) error {
	n := 100
	if b.Quick {
		n = 4
	}
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	source, leave, err := d.one(ctx)
	if err != nil {
		return err
	}
	defer leave()
	python := []string{"/usr/bin/python3", "-c", "import numpy"}
	if err := d.run(ctx, source.id, python...); err != nil {
		return &skipped{"the image of its containers has no numpy: " + err.Error()}
	}
	if err := d.bash(ctx, source.id, "echo written >/tmp/file; echo written >/workspace/file"); err != nil {
		return err
	}
	var ids []string
	tidy := func(ctx context.Context) error {
		err := d.removeAll(ctx, ids)
		ids = nil
		return err
	}
	all := func(make func(context.Context) error) func(context.Context) (float64, error) {
		return seconds(func(ctx context.Context) error {
			if err := make(ctx); err != nil {
				return err
			}
			return each(ctx, len(ids), hands, func(ctx context.Context, i int) error {
				return d.run(ctx, ids[i], python...)
			})
		})
	}
	forked, created, docker := fmt.Sprintf("%d forks", n), fmt.Sprintf("%d plain creates", n),
		fmt.Sprintf("%d of docker run", n)
	turns := []*turn{
		{name: created, role: Ours, unit: "s", after: tidy, op: all(func(ctx context.Context) (err error) {
			ids, err = d.live(ctx, n)
			return err
		})},
		{name: forked, role: Ours, unit: "s", after: tidy, op: all(func(ctx context.Context) (err error) {
			ids, err = d.forks(ctx, source.id, n)
			return err
		})},
	}
	if c := b.other(ctx, res, "docker"); c != nil {
		turns = append(turns, c.runningAll(docker, n, python...))
	}
	if err := b.inTurns(ctx, res, b.rounds(3), turns); err != nil {
		return err
	}
	res.against(forked, lower, created, docker)
	res.note("Each container runs `python3 -c %q`, %d clients at a time, until all have ended. Removing them is not "+
		"measured. docker has no forks: its containers are of the image.", python[2], hands)
	return nil
}

// seconds returns a function that measures the duration of do, in seconds.
func seconds(do func(context.Context) error) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		began := time.Now()
		err := do(ctx)
		return time.Since(began).Seconds(), err
	}
}

// runningAll returns a turn in which n containers are created that each run a command to its end.
func (c *comparator) runningAll(name string, n int, argv ...string) *turn {
	ids := make([]string, n)
	return &turn{name: name, role: Comparator, unit: "s", op: seconds(func(ctx context.Context) error {
		return each(ctx, n, hands, func(ctx context.Context, i int) error {
			ids[i] = fresh()
			return c.do(ctx, c.attached(ids[i], argv...))
		})
	}), after: func(ctx context.Context) error {
		return each(context.WithoutCancel(ctx), n, hands, func(ctx context.Context, i int) error {
			return c.delete(ctx, ids[i])
		})
	}}
}

package bench

import (
	"context"
	"fmt"

	"berth/proto"
)

// slopes measures how medians grow with the number of live containers.
func (b *bench) slopes(ctx context.Context, res *Result) error {
	steps := []int{10, 100, 1000}
	if b.Class == proto.ClassGVisor {
		steps = steps[:2]
		res.Missing = append(res.Missing, Missing{"1,000 containers", "each has a kernel with some 20 MiB"})
	}
	if b.Quick {
		steps = []int{1, 2, 4}
	}
	b.stopOwn()
	empty, pooled := b.poolFlags(0, 0), b.poolFlags(4, 8)
	d, err := b.private(ctx, empty...)
	if err != nil {
		return err
	}
	defer func() { d.stop() }()
	s, err := b.bare(ctx, res)
	if err != nil {
		return err
	}
	var ids []string
	for _, n := range steps {
		more, err := d.live(ctx, n-len(ids))
		if err != nil {
			return err
		}
		ids = append(ids, more...)
		if err := b.slopeAt(ctx, res, d, s, n, ids[0], empty, pooled); err != nil {
			return err
		}
	}
	first, last := steps[0], steps[len(steps)-1]
	for _, what := range []string{"command", "cold create", "warm create"} {
		res.against(at(what, last), atMost(1.2), at(what, first))
	}
	// The measurements are minutes apart, and the machine's speed may change in between. Two of them take turns with
	// bare spawns to correct for that. The divisor is not 0: a failing floor has ended the row.
	slower := res.measure(at(bareSpawn, last)).P50 / res.measure(at(bareSpawn, first)).P50
	for _, what := range []string{"command", "cold create"} {
		if few := res.measure(at(what, first)); few != nil {
			res.ratio(fmt.Sprintf("%s at %d / %s at %d, each in bare spawns beside it", what, last, what, first),
				res.measure(at(what, last)), few.P50*slower, atMost(1.2))
		}
	}
	res.against(at("restart", last), lower.untracked(), at("restart", first)) // one sample of each
	return nil
}

// at returns the name of a measure with n live containers.
func at(what string, n int) string { return fmt.Sprintf("%s at %d", what, n) }

// slopeAt measures with n live containers. Warm creates need a pool. So slopeAt kills the daemon and starts it with a
// pool, and later without one.
func (b *bench) slopeAt(ctx context.Context, res *Result, d *daemon, s spawn, n int, id string, empty,
	pooled []string) error {
	m := &maker{daemon: d}
	bare := spawning(s, nothingArgv...)
	bare.name = at(bareSpawn, n)
	turns := []*turn{
		bare,
		// Between the two, so that the work that a create leaves behind affects both equally often.
		{name: at("cold create", n), role: Ours, every: 2, op: m.make, after: m.tidy},
		{name: at("command", n), role: Ours, op: func(ctx context.Context) (float64, error) {
			return timed(func() error { return d.bash(ctx, id, nothing) })
		}},
	}
	if err := b.inTurns(ctx, res, b.rounds(100), turns); err != nil {
		return err
	}
	sweep, err := timed(func() error { _, err := d.Sweep(ctx, false); return err })
	if err != nil {
		return err
	}
	res.add(at("sweep", n), Ours, "ms", sweep)
	d.flags = pooled
	took, err := b.again(ctx, d, id)
	if err != nil {
		return err
	}
	res.add(at("restart", n), Ours, "ms", took)
	warm := &maker{daemon: d, pool: 1}
	if err := b.inTurns(ctx, res, b.rounds(30), []*turn{{name: at("warm create", n), role: Ours, op: warm.make,
		after: warm.tidy}}); err != nil {
		return err
	}
	d.kill()
	d.flags = empty
	return b.start(d)
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A reading of what is taken counts as settled when so many in a row, half a second apart, differ by no more than steady KiB.
const (
	readings   = 6
	steady     = 1024.0
	settleMost = time.Minute
)

// taken is the memory that is in use and that the kernel cannot take back when it wants to, in KiB. It is what MemAvailable leaves, but for two things that change by tens of
// MiB with nothing of ours: what that holds back of the page cache, and free pages that the kernel keeps aside for each processor.
func taken() float64 {
	aside := sumOf("/proc/zoneinfo", "count") * float64(os.Getpagesize()) / 1024 // in the lists of processors
	return memory("MemTotal", "Shmem") - memory("MemFree", "Buffers", "Cached", "SReclaimable") - aside
}

// settled is what is taken once that does not change any more. Settling is what is measured here, so time has to pass.
func settled(ctx context.Context) (float64, error) {
	last, same := taken(), 1
	for began := time.Now(); same < readings && time.Since(began) < settleMost; {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
		now := taken()
		if same++; math.Abs(now-last) > steady {
			same = 1
		}
		last = now
	}
	return last, nil
}

// memory is what containers hold that nobody uses: theirs, that of what stands beside them, and the kernel's.
func (b *bench) memory(ctx context.Context, res *Result) error {
	n, others := 200, 100
	switch {
	case b.Quick:
		n, others = 5, 2
	case b.Full:
		n, others = 500, 500
	}
	d, err := b.daemon(ctx, append(b.poolFlags(0, 0), dozers...)...)
	if err != nil {
		return err
	}
	hold := func(name string, doze bool) (float64, error) {
		var ids []string
		undo := func() error { return d.removeAll(ctx, ids) }
		kib, err := held(ctx, n, func(n int) (err error) {
			if ids, err = d.live(ctx, n); err == nil && doze {
				err = d.doze(ctx, n)
			}
			return err
		}, undo)
		charged(res, name, "container_")
		res.add(name, Ours, "KiB", kib)
		return kib, errors.Join(err, undo())
	}
	awake, err := hold(overHTTP+", awake", false)
	if err != nil {
		return err
	}
	mine, err := hold(overHTTP, true)
	if err != nil {
		return err
	}
	res.number("containers per GiB", (1<<20)/mine, atLeast(900))
	res.number("containers per GiB, awake", (1<<20)/awake, more)
	for _, o := range []other{{"docker", "docker run -d", others}, {"ctr", "ctr run -d", others}} {
		c := b.other(ctx, res, o.name)
		if c == nil {
			continue
		}
		theirs, err := c.held(ctx, o.every)
		if err != nil {
			return err
		}
		res.add(o.command, Comparator, "KiB", theirs)
		g := more
		if o.name == "docker" {
			g = atLeast(4)
		}
		res.number("as many as with "+o.command, theirs/mine, g)
	}
	res.note("%d containers of ours and %d of the others, created and not used, by the change of what is neither free nor cache. Ours doze, as they do a minute after their last use; those that are called awake do not yet.", n, others)
	return nil
}

// held is how much more memory is taken, for each of n, after build made them, which the caller undoes. A quarter of them is made and undone before that: what a daemon took
// for its start, for an image above all, goes back then and not in the middle of what counts.
func held(ctx context.Context, n int, build func(n int) error, undo func() error) (float64, error) {
	if err := errors.Join(build(max(1, n/4)), undo()); err != nil {
		return 0, err
	}
	before, err := settled(ctx)
	if err != nil {
		return 0, err
	}
	if err := build(n); err != nil {
		return 0, err
	}
	after, err := settled(ctx)
	if err == nil && after <= before {
		err = fmt.Errorf("%.0f KiB less are taken than before: something else on this machine gives memory back; measure again", before-after)
	}
	return (after - before) / float64(n), err
}

// held is the same for a comparator.
func (c *comparator) held(ctx context.Context, n int) (float64, error) {
	var ids []string
	undo := func() error {
		return each(context.WithoutCancel(ctx), len(ids), hands, func(ctx context.Context, i int) error { return c.delete(ctx, ids[i]) })
	}
	defer func() { _ = undo() }() // it ends with the comparator
	return held(ctx, n, func(n int) error {
		ids = make([]string, n)
		return each(ctx, n, churners, func(ctx context.Context, i int) error {
			ids[i] = fresh()
			return c.do(ctx, c.create(ids[i]))
		})
	}, undo)
}

// charged notes what the kernel charges to the cgroups of what name is about: all of it, and the kernel's own part.
func charged(res *Result, name, prefix string) {
	var all, kernel, n float64
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() || !strings.Contains(e.Name(), prefix) {
			return nil
		}
		for _, files := range [][2]string{{"memory.usage_in_bytes", "memory.kmem.usage_in_bytes"}, {"memory.current", ""}} {
			if total := counter(filepath.Join(path, files[0])); total > 0 {
				all, n = all+total, n+1
				kernel += counter(filepath.Join(path, files[1]))
			}
		}
		return nil
	})
	if n > 0 {
		res.note("%s: the kernel charges %.0f KiB to a container's cgroup, of which %.0f KiB are the kernel's own.", name, all/n/1024, kernel/n/1024)
	}
}

// counter is a file with one number; 0 if there is none.
func counter(file string) float64 {
	text, _ := os.ReadFile(file)
	v, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	return v
}

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

// slopes are the medians with more and more containers live.
func (b *bench) slopes(ctx context.Context, res *Result) error {
	steps := []int{10, 100, 1000}
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
	// Those are of minutes that lie apart, in which the machine's own speed changes. Two of them take turns with bare spawns.
	slower := res.measure(at(bareSpawn, last)).P50 / res.measure(at(bareSpawn, first)).P50 // a floor that fails has ended the row
	for _, what := range []string{"command", "cold create"} {
		if few := res.measure(at(what, first)); few != nil {
			res.ratio(fmt.Sprintf("%s at %d / %s at %d, each in bare spawns beside it", what, last, what, first), res.measure(at(what, last)), few.P50*slower, atMost(1.2))
		}
	}
	res.against(at("restart", last), lower, at("restart", first))
	return nil
}

// at names a measure with so many live containers.
func at(what string, n int) string { return fmt.Sprintf("%s at %d", what, n) }

// slopeAt measures with n live containers. Warm creates need a pool, so the daemon is killed and started with one, and then without.
func (b *bench) slopeAt(ctx context.Context, res *Result, d *daemon, s spawn, n int, id string, empty, pooled []string) error {
	m := &maker{daemon: d}
	bare := spawning(s, nothingArgv...)
	bare.name = at(bareSpawn, n)
	turns := []*turn{
		bare,
		{name: at("command", n), role: Ours, op: func(ctx context.Context) (float64, error) {
			return timed(func() error { return d.bash(ctx, id, nothing) })
		}},
		{name: at("cold create", n), role: Ours, every: 2, op: m.make, after: m.tidy},
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
	if err := b.inTurns(ctx, res, b.rounds(30), []*turn{{name: at("warm create", n), role: Ours, op: warm.make, after: warm.tidy}}); err != nil {
		return err
	}
	d.kill()
	d.flags = empty
	return b.start(d)
}

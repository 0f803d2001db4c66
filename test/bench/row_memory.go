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

// Memory use counts as settled when this many readings in a row, half a second apart, differ by at most steady KiB.
const (
	readings   = 6
	steady     = 1024.0
	settleMost = time.Minute
)

// taken returns the used memory that the kernel cannot reclaim, in KiB. It is based on MemAvailable. It corrects for
// two parts that change by tens of MiB without any action of ours: the reserved part of the page cache, and free
// pages in per-CPU lists.
func taken() float64 {
	aside := sumOf("/proc/zoneinfo", "count") * float64(os.Getpagesize()) / 1024 // in the lists of processors
	return memory("MemTotal", "Shmem") - memory("MemFree", "Buffers", "Cached", "SReclaimable") - aside
}

// settled returns the used memory once it no longer changes. It must wait, because the change over time is what it
// observes.
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

// memory measures the memory of idle containers: of the containers, of their helper processes, and of the kernel.
func (b *bench) memory(ctx context.Context, res *Result) error {
	n, others := 200, 100
	switch {
	case b.Quick:
		others = 2
	case b.Full:
		n, others = 500, 500
	}
	n = b.live(res, n, 5, 2)
	d, err := b.daemon(ctx, append(b.poolFlags(0, 0), stoppers...)...)
	if err != nil {
		return err
	}
	hold := func(name string, stop bool) (float64, error) {
		var ids []string
		undo := func() error { return d.removeAll(ctx, ids) }
		kib, err := held(ctx, n, func(n int) (err error) {
			if ids, err = d.live(ctx, n); err == nil && stop {
				err = d.stopUnused(ctx, n)
			}
			return err
		}, undo)
		charged(res, name, "container_")
		res.add(name, Ours, "KiB", kib)
		return kib, errors.Join(err, undo())
	}
	mine, err := hold(overHTTP, false)
	if err != nil {
		return err
	}
	stopped, err := hold(overHTTP+", stopped", true)
	if err != nil {
		return err
	}
	res.number("containers per GiB", (1<<20)/mine, more)
	res.number("KiB of a stopped container", stopped, lower)
	for _, o := range []other{{"docker", "docker run -d", others}, {"ctr", "ctr run -d", others},
		{"ctr", groupedShims, others}} {
		c := b.other(ctx, res, o.name)
		if c == nil {
			continue
		}
		if o.command == groupedShims {
			c = c.with("--annotation", "io.containerd.runc.v2.group=berth-bench")
		}
		theirs, err := c.held(ctx, o.every)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			res.Missing = append(res.Missing, Missing{o.command, err.Error()})
			continue
		}
		res.add(o.command, Comparator, "KiB", theirs)
		g := more.untracked() // there is only one sample
		if o.name == "docker" {
			g = atLeast(4)
		}
		res.number("as many as with "+o.command, theirs/mine, g)
	}
	res.note("%d containers of ours and %d of the others, created and not used, by the change of what is neither "+
		"free nor cache. Ours are stopped a minute after their last use; all others run.",
		n, others)
	return nil
}

// groupedShims is ctr with one shim for all containers. By default it starts one for each.
const groupedShims = "ctr run -d with grouped shims"

// held returns the additional memory for each of n containers that build creates. The caller undoes build. Before
// that, held creates and undoes a quarter of them. So memory that a daemon used for its start, above all for an
// image, is released before the measurement.
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
		err = fmt.Errorf("%.0f KiB less are taken than before: something else on this machine gives memory back; "+
			"measure again", before-after)
	}
	return (after - before) / float64(n), err
}

// held returns the same for a comparator.
func (c *comparator) held(ctx context.Context, n int) (float64, error) {
	var undo func() error
	defer func() {
		if undo != nil {
			_ = undo() // the container ends with the comparator
		}
	}()
	return held(ctx, n, func(n int) (err error) {
		_, undo, err = c.many(ctx, n)
		return err
	}, func() error { return undo() })
}

// many creates containers. undo removes those that were created; it may be called more than once.
func (c *comparator) many(ctx context.Context, n int) (ids []string, undo func() error, err error) {
	ids = make([]string, n)
	undo = func() error {
		return each(context.WithoutCancel(ctx), n, hands, func(ctx context.Context, i int) (err error) {
			if ids[i] != "" {
				err = c.delete(ctx, ids[i])
				ids[i] = ""
			}
			return err
		})
	}
	return ids, undo, each(ctx, n, churners, func(ctx context.Context, i int) error {
		ids[i] = fresh()
		return c.do(ctx, c.create(ids[i]))
	})
}

// charged notes the memory that the kernel charges to the cgroups with a prefix: the total and the kernel's part.
func charged(res *Result, name, prefix string) {
	var all, kernel, n float64
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() || !strings.Contains(e.Name(), prefix) {
			return nil
		}
		for _, files := range [][2]string{{"memory.usage_in_bytes", "memory.kmem.usage_in_bytes"},
			{"memory.current", ""}} {
			if total := counter(filepath.Join(path, files[0])); total > 0 {
				all, n = all+total, n+1
				kernel += counter(filepath.Join(path, files[1]))
			}
		}
		return nil
	})
	if n > 0 {
		res.note("%s: the kernel charges %.0f KiB to a container's cgroup, of which %.0f KiB are the kernel's own.",
			name, all/n/1024, kernel/n/1024)
	}
}

// counter returns the number in a file, or 0 if there is none.
func counter(file string) float64 {
	text, _ := os.ReadFile(file)
	v, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	return v
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/proto"
)

// each calls do n times with concurrent workers, and joins the errors.
func each(ctx context.Context, n, workers int, do func(ctx context.Context, i int) error) error {
	next := make(chan int)
	go func() {
		defer close(next)
		for i := range n {
			next <- i
		}
	}()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				err := ctx.Err()
				if err == nil {
					err = do(ctx, i)
				}
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d failed, first: %w", len(errs), n, errs[0])
	}
	return nil
}

// hands is the number of workers for preparation and cleanup, which are not measured.
const hands = 8

// live creates n containers. It returns the IDs, including those created before a failure.
func (d *daemon) live(ctx context.Context, n int) ([]string, error) {
	ids := make([]string, n)
	err := each(ctx, n, hands, func(ctx context.Context, i int) (err error) {
		ids[i], err = d.create(ctx, proto.CreateContainer{})
		return err
	})
	return ids, err
}

// removeAll deletes containers. It skips empty IDs, of containers that were not created.
func (d *daemon) removeAll(ctx context.Context, ids []string) error {
	return each(context.WithoutCancel(ctx), len(ids), hands, func(ctx context.Context, i int) error {
		if ids[i] == "" {
			return nil
		}
		return d.remove(ctx, ids[i])
	})
}

// burst measures as many concurrent creates as the pool has containers.
func (b *bench) burst(ctx context.Context, res *Result) error {
	n, rounds := b.live(res, 200, 8, 5), 7
	if b.Quick {
		rounds = 1
	}
	if err := b.burstOf(ctx, res, overHTTP, n, n, rounds); err != nil {
		return err
	}
	res.against(overHTTP, atLeast(0.25), "pings by the same clients")
	if b.Full {
		return b.burstOf(ctx, res, "berth, pool a quarter", n, n/4, 1)
	}
	return nil
}

// burstOf lets n clients create one container each. The pool has pooled containers.
func (b *bench) burstOf(ctx context.Context, res *Result, name string, n, pooled, rounds int) error {
	d, err := b.daemon(ctx, b.poolFlags(pooled, pooled+pooled/4)...)
	if err != nil {
		return err
	}
	users := make([]*daemon, n)
	for i := range users {
		c, err := d.Apart()
		if err != nil {
			return err
		}
		users[i] = &daemon{Client: c}
	}
	ids, single := make([]string, n), []float64{}
	var mu sync.Mutex
	ready := func(ctx context.Context) error { // connected, and with a refilled pool
		if err := each(ctx, n, n, func(ctx context.Context, i int) error { return users[i].Ping(ctx) }); err != nil {
			return err
		}
		return d.filled(ctx, pooled)
	}
	atOnce := func(ctx context.Context, do func(ctx context.Context, i int) error) (float64, error) {
		took, err := timed(func() error { return each(ctx, n, n, do) })
		return float64(n) / took * 1000, err
	}
	turns := []*turn{
		{name: "pings by the same clients", role: Floor, unit: "1/s", op: func(ctx context.Context) (float64, error) {
			if err := ready(ctx); err != nil {
				return 0, err
			}
			return atOnce(ctx, func(ctx context.Context, i int) error { return users[i].Ping(ctx) })
		}},
		{name: name, role: Ours, unit: "1/s", op: func(ctx context.Context) (float64, error) {
			clear(ids)
			if err := ready(ctx); err != nil {
				return 0, err
			}
			return atOnce(ctx, func(ctx context.Context, i int) error {
				took, err := timed(func() (err error) {
					ids[i], err = users[i].create(
						ctx, proto.CreateContainer{})
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				single = append(single, took)
				return err
			})
		}, after: func(ctx context.Context) error { return d.removeAll(ctx, ids) }},
	}
	before, err := d.pool(ctx)
	if err != nil {
		return err
	}
	if err := b.inTurns(ctx, res, rounds, turns); err != nil {
		return err
	}
	// each round has n samples
	res.add("one create of a burst, "+name, Ours, "ms", single[min(n*warmUps(rounds), len(single)):]...)
	now, err := d.pool(ctx)
	if now.there {
		res.note("%s: %d creates at once, %d in the pool, %d missed it.", name, n, pooled, now.misses-before.misses)
	}
	return err
}

// churners is the number of workers that create and delete concurrently.
const churners = 4

// churn measures continuous creating and deleting.
func (b *bench) churn(ctx context.Context, res *Result) error {
	slice, rounds := 5*time.Second, 3
	switch {
	case b.Quick:
		slice, rounds = time.Second, 1
	case b.Full:
		rounds = 60
	}
	d, err := b.daemon(ctx, b.poolFlags(churners, churners)...)
	if err != nil {
		return err
	}
	turns := []*turn{{name: overHTTP, role: Ours, unit: "1/s", op: func(ctx context.Context) (float64, error) {
		return rate(ctx, churners, slice, func(ctx context.Context, _ int) error {
			id, err := d.create(ctx, proto.CreateContainer{})
			if err != nil {
				return err
			}
			return d.remove(ctx, id)
		})
	}}}
	against := func(name string, whole func(ctx context.Context, id string) error) {
		turns = append(turns, &turn{name: name, role: Comparator, unit: "1/s", op: func(ctx context.Context) (
			float64, error) {
			return rate(ctx, churners, slice, func(ctx context.Context, _ int) error { return whole(ctx, fresh()) })
		}})
	}
	for _, o := range []other{{"ctr", "ctr run --rm", 1}, {"docker", "docker run --rm", 1}} {
		if c := b.other(ctx, res, o.name); c != nil {
			against(o.command, c.whole)
		}
	}
	if c := b.others["ctr"]; c != nil {
		if l, err := c.library(ctx); err != nil {
			res.Missing = append(res.Missing, Missing{goClient, err.Error()})
		} else {
			defer l.client.Close()
			against(goClient, l.whole)
		}
	}
	if err := d.filled(ctx, churners); err != nil {
		return err
	}
	before := d.traces() // includes permanent traces of comparators
	if err := b.inTurns(ctx, res, rounds, turns); err != nil {
		return err
	}
	res.against(overHTTP, atLeast(1.2), "ctr run --rm")
	res.against(overHTTP, more, goClient, "docker run --rm")
	res.note("%d workers, %v at a time, %v in all for each.", churners, slice, slice*time.Duration(rounds))
	return d.leaked(ctx, res, before)
}

// traces counts the host resources of a daemon's containers, which may leak.
type traces map[string]int

// traces counts the resources. It counts nothing for a daemon that the bench did not start, whose process is unknown.
func (d *daemon) traces() traces {
	if d.proc == nil {
		return nil
	}
	t := traces{}
	table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", d.proc.PID()))
	t["mounts"] = strings.Count(string(table), "\n")
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(e.Name(), proto.ContainerPrefix) {
			t["cgroups"]++
		}
		return nil // files may disappear during the walk
	})
	networks := map[string]bool{}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil {
			networks[to] = true
		}
	}
	t["network namespaces"] = len(networks)
	return t
}

// settling limits how long the resources of deleted containers may exist.
const settling = 30 * time.Second

// leaked returns an error if there is more of any resource than before.
func (d *daemon) leaked(ctx context.Context, res *Result, before traces) error {
	if before == nil {
		res.note("What it leaves was not looked at: the daemon is not ours.")
		return nil
	}
	if err := d.filled(ctx, churners); err != nil {
		return err
	}
	for began := time.Now(); ; {
		more, now := []string{}, d.traces()
		for _, what := range []string{"mounts", "cgroups", "network namespaces"} {
			if now[what] > before[what] {
				more = append(more, fmt.Sprintf("%d %s more than before", now[what]-before[what], what))
			}
		}
		if len(more) == 0 {
			res.note("Nothing was left: mounts, cgroups and network namespaces are as many as before.")
			return nil
		}
		if time.Since(began) > settling {
			return errors.New("leaked: " + strings.Join(more, ", "))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

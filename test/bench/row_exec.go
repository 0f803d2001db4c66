package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"berth/client"
	"berth/proto"
)

// The command of the exec rows, the smallest possible for bash.
const nothing = "true"

var nothingArgv = []string{"/bin/bash", "-c", nothing}

// Names of turns that several rows use.
const (
	bareSpawn = "bare spawn"
	overHTTP  = "berth"
	overLive  = "berth, websocket"
)

// beside prepares a row about commands: a container of a daemon, which the caller must leave, and the bare machine.
func (b *bench) beside(ctx context.Context, res *Result) (d *daemon, s spawn, id string, err error) {
	if d, err = b.daemon(ctx); err != nil {
		return d, s, "", err
	}
	if s, err = b.bare(ctx, res); err != nil {
		return d, s, "", err
	}
	id, err = d.container(ctx)
	return d, s, id, err
}

// spawning returns the floor for commands.
func spawning(s spawn, argv ...string) *turn {
	return &turn{name: bareSpawn, role: Floor, op: func(context.Context) (float64, error) {
		return timed(func() error { return s.run(argv...) })
	}}
}

// exec measures a command and its answer.
func (b *bench) exec(ctx context.Context, res *Result) error {
	d, s, id, err := b.beside(ctx, res)
	if err != nil {
		return err
	}
	defer d.leave(ctx)
	spawnThere, stop, err := s.serving(nothingArgv...)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }() // no requests are left
	least := &turn{name: spawnOverHTTP, role: Floor, op: func(ctx context.Context) (float64, error) {
		return timed(func() error { return spawnThere(ctx) })
	}}
	turns := []*turn{spawning(s, nothingArgv...), least}
	for _, o := range execOthers { // not at either end, where they would always follow the same turn
		if c := b.other(ctx, res, o.name); c != nil {
			turns = append(turns, c.running(o.command, o.every, "bash", "-c", nothing))
		}
	}
	turns = append(turns, &turn{name: overHTTP, role: Ours, op: func(ctx context.Context) (float64, error) {
		return timed(func() error { return d.bash(ctx, id, nothing) })
	}})
	if err := b.inTurns(ctx, res, b.rounds(400), turns); err != nil {
		return err
	}
	res.against(overHTTP, atMost(1.35), bareSpawn)
	res.against(overHTTP, atMost(0.1), "ctr task exec")
	res.against(overHTTP, lower, "docker exec", "crun exec", spawnOverHTTP)
	res.against(spawnOverHTTP, lower.untracked(), bareSpawn) // does not contain berth
	res.tail(overHTTP, atMost(3))
	return nil
}

// execOthers are the names of running a command in a container with each comparator. Slow comparators take part in
// fewer rounds.
var execOthers = []other{{"ctr", "ctr task exec", 4}, {"docker", "docker exec", 10}, {"crun", "crun exec", 4}}

// An other is the part of a comparator in a row.
type other struct {
	name, command string
	every         int
}

// bash runs a bash script, which must succeed.
func (d *daemon) bash(ctx context.Context, id, text string) error {
	res, err := d.Run(ctx, id, proto.Cmd{Command: text})
	if err != nil {
		return err
	}
	return succeeded(res)
}

// execLive measures the same over a connection on which commands are messages.
func (b *bench) execLive(ctx context.Context, res *Result) error {
	d, s, id, err := b.beside(ctx, res)
	if err != nil {
		return err
	}
	defer d.leave(ctx)
	live, err := d.Live(ctx, id)
	if err != nil {
		return err
	}
	defer live.Close()
	n := 0
	turns := []*turn{spawning(s, nothingArgv...), {name: overLive, role: Ours, loud: true,
		op: func(ctx context.Context) (float64, error) {
			n++
			return timed(func() error {
				end, err := finish(ctx, live, strconv.Itoa(n), proto.Cmd{Command: nothing}, nil)
				if err != nil {
					return err
				}
				return succeeded(end)
			})
		}}}
	if err := b.inTurns(ctx, res, b.rounds(400), turns); err != nil {
		return err
	}
	res.against(overLive, atMost(1.15), bareSpawn)
	res.tail(overLive, lower)
	return nil
}

// finish runs a command on a live connection and waits for its end. It passes output to each, which may be nil.
func finish(ctx context.Context, live *client.Live, ref string, cmd proto.Cmd, each func(proto.Event)) (
	res proto.ExecResult, err error) {
	if err := live.Exec(ref, cmd); err != nil {
		return res, err
	}
	for {
		e, err := live.Next(ctx)
		switch {
		case err != nil:
			return res, err
		case e.Type == proto.EventError && e.Error != nil:
			return res, e.Error
		case e.Type == proto.EventGap:
			return res, fmt.Errorf("output is missing from %d to %d", e.Offset, e.Until)
		case e.Type == proto.EventExit && e.Result != nil:
			return *e.Result, nil
		case e.Type == proto.EventStdout && each != nil:
			each(e)
		}
	}
}

// clients is the number of concurrent clients in rows about concurrency.
const clients = 16

// python measures the start of an interpreter, which needs much more of the disk and the kernel than bash.
func (b *bench) python(ctx context.Context, res *Result) error {
	d, s, id, err := b.beside(ctx, res)
	if err != nil {
		return err
	}
	defer d.leave(ctx)
	turns := []*turn{spawning(s, "/usr/bin/python3", "-c", "pass"), {name: overHTTP, role: Ours,
		op: func(ctx context.Context) (float64, error) {
			return timed(func() error { return d.run(ctx, id, "/usr/bin/python3", "-c", "pass") })
		}}}
	if err := b.inTurns(ctx, res, b.rounds(150), turns); err != nil {
		return err
	}
	res.against(overHTTP, atMost(1.1), bareSpawn)
	return nil
}

// run runs a program, which must succeed.
func (d *daemon) run(ctx context.Context, id string, argv ...string) error {
	res, err := d.Run(ctx, id, proto.Cmd{Argv: argv})
	if err != nil {
		return err
	}
	return succeeded(res)
}

// throughput measures commands per second.
func (b *bench) throughput(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	s, err := b.bare(ctx, res)
	if err != nil {
		return err
	}
	users, err := b.users(ctx, d, clients)
	defer func() {
		for _, u := range users {
			_ = d.remove(ctx, u.box) // otherwise its lifetime ends it
		}
	}()
	if err != nil {
		return err
	}
	spawnThere, stop, err := s.serving(nothingArgv...)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }() // no requests are left
	slice := 2 * time.Second
	if b.Quick {
		slice = 200 * time.Millisecond
	}
	res.note("%d clients, each with a container and a connection of its own, for %v at a time.", clients, slice)
	turns := []*turn{
		{name: bareSpawn, role: Floor, unit: "1/s", op: func(ctx context.Context) (float64, error) {
			return rate(ctx, clients, slice, func(context.Context, int) error { return s.run(nothingArgv...) })
		}},
		{name: spawnOverHTTP, role: Floor, unit: "1/s", op: func(ctx context.Context) (float64, error) {
			return rate(ctx, clients, slice, func(ctx context.Context, _ int) error { return spawnThere(ctx) })
		}},
		{name: overHTTP, role: Ours, unit: "1/s", op: func(ctx context.Context) (float64, error) {
			return rate(ctx, clients, slice, func(ctx context.Context, i int) error {
				return users[i].bash(ctx, users[i].box, nothing)
			})
		}},
	}
	if err := b.inTurns(ctx, res, b.rounds(7), turns); err != nil {
		return err
	}
	res.against(overHTTP, atLeast(0.85), bareSpawn)
	res.against(overHTTP, more, spawnOverHTTP)
	res.against(spawnOverHTTP, more.untracked(), bareSpawn)
	return nil
}

// users returns n clients of a daemon, each with its own connections and a container.
func (b *bench) users(ctx context.Context, d *daemon, n int) (all []*daemon, err error) {
	for range n {
		c, err := d.Apart()
		if err != nil {
			return all, err
		}
		u := &daemon{Client: c}
		if u.box, err = u.create(ctx, proto.CreateContainer{}); err != nil {
			return all, err
		}
		all = append(all, u)
	}
	return all, nil
}

// rate returns how many times per second n workers can call do. The first failure ends it.
func rate(ctx context.Context, n int, during time.Duration, do func(ctx context.Context, worker int) error) (
	float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			for time.Since(began) < during && ctx.Err() == nil {
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), context.Cause(ctx)
}

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth/client"
	"berth/proto"
)

// The code that the rows about code run, and its value.
const sum11, value11 = "1+1", "2"

// right returns an error if the outcome does not have that value.
func right(res proto.Outcome, err error) error {
	if err == nil && !slices.Equal(res.Results, []string{value11}) {
		err = fmt.Errorf("results %q, error %q", res.Results, res.Error)
	}
	return err
}

// code measures a program with a new container and a new interpreter, until its value is returned.
func (b *bench) code(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	s, err := b.bare(ctx, res)
	if err != nil {
		return err
	}
	run := func(ctx context.Context) error {
		return right(d.RunCode(ctx, proto.Program{Code: sum11,
			Confinement: proto.Confinement{RuntimeClass: d.class}}))
	}
	if err := run(ctx); err != nil { // after the first run, the daemon keeps a container ready
		return err
	}
	turns := []*turn{spawning(s, "/usr/bin/python3", "-c", sum11), {name: overHTTP, role: Ours,
		op: func(ctx context.Context) (float64, error) {
			if err := d.codeReady(ctx); err != nil {
				return 0, err
			}
			return timed(func() error { return run(ctx) })
		}}}
	if err := b.inTurns(ctx, res, b.rounds(150), turns); err != nil {
		return err
	}
	res.against(overHTTP, atMost(1.5), bareSpawn)
	res.tail(overHTTP, atMost(5))
	res.note("The daemon keeps a container with an interpreter ready for a minute after a run, and each run here " +
		"has that. One that comes before the next is ready waits for it.")
	return nil
}

// readyTime limits how long the daemon may take to have a container ready for code.
const readyTime = 30 * time.Second

// codeReady waits until a container is ready for code and its interpreter has begun to start. It gives up if the
// daemon keeps no container ready.
func (d *daemon) codeReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		list, err := d.Containers(ctx, client.Filter{Labels: []string{"berth.for=run_code"}})
		if err != nil {
			return err
		}
		for _, c := range list {
			execs, err := d.Execs(ctx, c.ID)
			if err != nil && proto.CodeOf(err) != proto.NotFound { // it was used just now
				return err
			}
			if slices.ContainsFunc(execs, func(x proto.Exec) bool { return x.State == proto.ExecRunning }) {
				return nil
			}
		}
		time.Sleep(5 * time.Millisecond) // poll: there is no event
	}
}

// cell measures code in a running interpreter, compared with a command in the same container and a cell of a Jupyter
// kernel.
func (b *bench) cell(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	id, err := d.container(ctx)
	if err != nil {
		return err
	}
	defer d.leave(ctx)
	cell := func(ctx context.Context) error {
		return right(d.RunCode(ctx, proto.Program{Code: sum11, Container: id, Context: "bench"}))
	}
	if err := cell(ctx); err != nil {
		return err
	}
	const command = "bash -c true"
	turns := []*turn{{name: command, role: Floor, op: func(ctx context.Context) (float64, error) {
		return timed(func() error { return d.bash(ctx, id, nothing) })
	}}, {name: overHTTP, role: Ours, op: func(ctx context.Context) (float64, error) {
		return timed(func() error { return cell(ctx) })
	}}}
	if !b.Alone {
		b.say("  starting a %s", jupyterKernel)
		if k, err := b.startKernel(ctx); err != nil {
			res.Missing = append(res.Missing, Missing{jupyterKernel, err.Error()})
		} else {
			defer k.end()
			turns = append(turns, &turn{name: jupyterKernel, role: Comparator, op: func(ctx context.Context) (
				float64, error) {
				return timed(func() error { return k.cell(ctx) })
			}})
		}
	}
	if err := b.inTurns(ctx, res, b.rounds(400), turns); err != nil {
		return err
	}
	res.against(overHTTP, atMost(1), command)
	res.against(overHTTP, lower, jupyterKernel)
	res.tail(overHTTP, atMost(5))
	if res.measure(jupyterKernel) != nil {
		res.note("The %s runs on the host, and is asked by jupyter_client's blocking client: that one's Python is "+
			"part of its time.", jupyterKernel)
	}
	return nil
}

package bench

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"berth/cli/pack"
	"berth/proto"
)

// A classed is one operation that both runtime classes do. The report has a ratio for each.
type classed struct {
	name   string
	rounds int
	most   float64 // target of gVisor's time over runc's; 0: none
	before func(ctx context.Context, u *confined) error
	op     func(ctx context.Context, u *confined) error
	after  func(ctx context.Context, u *confined) error
}

// A confined is the container of a runtime class that takes part.
type confined struct {
	*daemon
	class proto.RuntimeClass
	box   string
	made  string // of a create
}

// run runs a command in the container.
func run(text string) func(context.Context, *confined) error {
	return func(ctx context.Context, u *confined) error { return u.bash(ctx, u.box, text) }
}

// create creates a container and keeps its ID for after.
func (u *confined) make(ctx context.Context) (err error) {
	u.made, err = u.create(ctx, proto.CreateContainer{RuntimeClass: u.class})
	return err
}

// filledFor waits until a create of the class is served by the pool, which makes nothing.
func (u *confined) filledFor(ctx context.Context) error { return u.filled(ctx, 3) }

func (u *confined) drop(ctx context.Context) error { return u.remove(ctx, u.made) }

// smallFiles is the work of the row's files: 500 files of 4 KiB.
const smallFiles = 500

// classOps are the operations of the row, each named as the row that measures it for runc.
func classOps(tree string) []classed {
	python := func(text string) string { return "python3 -c \"\n" + text + "\"" }
	put := func(ctx context.Context, u *confined) error {
		return pack.Stream(tree, func(string, pack.Reason) {}, func(r io.Reader) error {
			return u.FS(u.box, proto.UserDefault).Untar(ctx, inside, r)
		})
	}
	get := func(ctx context.Context, u *confined) error {
		in, err := u.FS(u.box, proto.UserDefault).Tar(ctx, inside)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(io.Discard, in)
		return err
	}
	return []classed{
		{name: "warm: create from the pool", rounds: 60, most: 3, before: func(ctx context.Context, u *confined) error {
			return u.filledFor(ctx)
		}, op: func(ctx context.Context, u *confined) error { return u.make(ctx) },
			after: func(ctx context.Context, u *confined) error { return u.drop(ctx) }},
		{name: "wake: a command in a stopped container", rounds: 30, before: func(ctx context.Context, u *confined) error {
			if _, err := u.Stop(ctx, u.box); err != nil {
				return err
			}
			return u.filledFor(ctx)
		}, op: run(nothing)},
		{name: "exec", rounds: 200, most: 4, op: run(nothing)},
		{name: "python", rounds: 60, op: func(ctx context.Context, u *confined) error {
			res, err := u.Run(ctx, u.box, proto.Cmd{Argv: []string{"python3", "-c", "pass"}})
			if err != nil {
				return err
			}
			return succeeded(res)
		}},
		{name: "cell", rounds: 200, op: func(ctx context.Context, u *confined) error {
			_, err := u.RunCell(ctx, u.box, "bench", proto.Cell{Code: "1+1"}, func(proto.Progress) error { return nil })
			return err
		}},
		{name: "pause and resume", rounds: 30, op: func(ctx context.Context, u *confined) error {
			if _, err := u.Pause(ctx, u.box); err != nil {
				return err
			}
			_, err := u.Resume(ctx, u.box)
			return err
		}},
		{name: "forks: 30 programs from one bash", rounds: 20, op: run("for i in {1..30}; do /bin/true; done")},
		{name: "small files: write 500", rounds: 20, most: 3, op: run("rm -rf small; mkdir small; " + python(fmt.Sprintf(
			"for i in range(%d):\n open(f'small/{i}','wb').write(b'x'*4096)", smallFiles)))},
		{name: "small files: read 500", rounds: 20, most: 3, op: run(python(fmt.Sprintf(
			"for i in range(%d):\n open(f'small/{i}','rb').read()", smallFiles)))},
		{name: "many: tar of 500 files into it", rounds: 15, op: put},
		{name: "many: tar of 500 files out of it", rounds: 15, op: get},
		{name: "bulk: write and read 64 MiB", rounds: 10, op: run("head -c 64M /dev/zero >big; cat big >/dev/null; rm big")},
		{name: "computing", rounds: 10, most: 1.2, op: run(python("s=0\nfor i in range(2000000): s+=i*i"))},
	}
}

// gvisor measures what the class gvisor costs, beside runc in one run.
func (b *bench) gvisor(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	info, err := d.Info(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(info.RuntimeClasses, proto.ClassGVisor) {
		return &skipped{"this daemon has no runtime class gvisor"}
	}
	tree := filepath.Join(b.tmp, "small")
	if err := command(ctx, "sh", "-c", fmt.Sprintf("mkdir %q && cd %q && for i in $(seq %d); do head -c 4096 /dev/urandom "+
		">$i; done", tree, tree, smallFiles)); err != nil {
		return err
	}
	users := []*confined{{daemon: d, class: proto.ClassRunc}, {daemon: d, class: proto.ClassGVisor}}
	for _, u := range users {
		if u.box, err = d.create(ctx, proto.CreateContainer{RuntimeClass: u.class}); err != nil {
			return err
		}
		defer func() { _ = d.remove(ctx, u.box) }() // otherwise its lifetime ends it
	}
	for _, o := range classOps(tree) {
		var turns []*turn
		for _, u := range users {
			t := &turn{name: o.name + ", " + string(u.class), role: Ours, op: func(ctx context.Context) (float64, error) {
				return timed(func() error { return o.op(ctx, u) })
			}}
			if o.before != nil {
				t.before = func(ctx context.Context) error { return o.before(ctx, u) }
			}
			if o.after != nil {
				t.after = func(ctx context.Context) error { return o.after(ctx, u) }
			}
			turns = append(turns, t)
		}
		if err := b.inTurns(ctx, res, b.rounds(o.rounds), turns); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		goal := lower.untracked()
		if o.most > 0 {
			goal = atMost(o.most)
		}
		if m := res.measure(turns[0].name); m != nil {
			res.ratio(o.name+", gvisor / runc", res.measure(turns[1].name), m.P50, goal)
		}
	}
	res.note("%s", strings.Join(gvisorNotes, " "))
	return nil
}

// gvisorNotes say why some ratios are what they are.
var gvisorNotes = []string{
	"Each system call of a program goes to gVisor's kernel, which is a process of the host: what forks, opens or copies " +
		"much pays for it, and what computes does not.",
	"Pausing starts the program runsc, twice.",
}

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// bulky creates a container with 1 GiB of files, half in the workspace and half in the layer, and a command that goes
// on writing to both.
func (b *bench) bulky(ctx context.Context, d *daemon) (id string, leave func(), err error) {
	mebibytes := 512
	if b.Quick {
		mebibytes = 16
	}
	id, err = d.create(ctx, proto.CreateContainer{Limits: proto.Limits{DiskBytes: 4 << 30}})
	if err != nil {
		return "", func() {}, err
	}
	leave = func() { _ = d.remove(ctx, id) } // otherwise its lifetime ends it
	fill := fmt.Sprintf("for f in /workspace/bulk /tmp/bulk; do head -c %dM /dev/urandom >$f || exit; done; sync",
		mebibytes)
	if err = d.bash(ctx, id, fill); err == nil {
		_, err = d.Launch(ctx, id, proto.Cmd{Command: "i=0; while :; do i=$((i+1)); " +
			"echo $i >>/workspace/log; echo $i >>/tmp/log; sleep 0.01; done"})
	}
	return id, leave, err
}

// snapshot measures how long it takes to snapshot a container of 1 GiB with a command that writes, without other
// snapshots of it and with 20.
func (b *bench) snapshot(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	id, leave, err := b.bulky(ctx, d)
	defer leave()
	if err != nil {
		return err
	}
	var last string
	take := func(ctx context.Context) (took float64, err error) {
		last = ""
		return timed(func() error {
			snap, err := d.CreateSnapshot(ctx, id, proto.CreateSnapshot{})
			last = snap.ID
			return err
		})
	}
	drop := func(ctx context.Context) error {
		if last == "" {
			return nil
		}
		return d.DeleteSnapshot(ctx, last)
	}
	alone, among := "snapshot", "snapshot, with 20"
	err = b.inTurns(ctx, res, b.rounds(100), []*turn{
		{name: pingFloor, role: Floor, op: func(ctx context.Context) (float64, error) {
			return timed(func() error { return d.Ping(ctx) })
		}},
		{name: alone, role: Ours, op: take, after: drop},
	})
	if err != nil {
		return err
	}
	for range 20 {
		if _, err := take(ctx); err != nil {
			return err
		}
		kept := last
		defer func() { _ = d.DeleteSnapshot(context.WithoutCancel(ctx), kept) }()
	}
	if err := b.inTurns(ctx, res, b.rounds(100), []*turn{{name: among, role: Ours, op: take, after: drop}}); err != nil {
		return err
	}
	res.against(among, atMost(1.2), alone)
	res.tail(alone, lower)
	return nil
}

// fork measures how long it takes to fork a container of 1 GiB, until the answer, and what a fork takes on disk.
func (b *bench) fork(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	id, leave, err := b.bulky(ctx, d)
	defer leave()
	if err != nil {
		return err
	}
	var forks []string
	tidy := func(ctx context.Context) error {
		err := d.removeAll(ctx, forks)
		forks = nil
		return err
	}
	fork := func(ctx context.Context) (float64, error) {
		return timed(func() (err error) {
			forks, err = d.forks(ctx, id, 1)
			return err
		})
	}
	plain := &maker{daemon: d, pool: 1}
	if err := b.inTurns(ctx, res, b.rounds(50), []*turn{
		{name: overHTTP, role: Ours, op: plain.make, after: plain.tidy},
		{name: "fork", role: Ours, op: fork, after: tidy},
	}); err != nil {
		return err
	}
	res.against("fork", lower, overHTTP)
	return d.forkSize(ctx, res, id)
}

// forks makes n copies of a container and returns their IDs.
func (d *daemon) forks(ctx context.Context, id string, n int) (ids []string, err error) {
	made, err := d.Fork(ctx, id, n)
	for _, con := range made {
		ids = append(ids, con.ID)
	}
	return ids, err
}

// forkSize adds what each of ten forks takes in the disk pool of a private daemon.
func (d *daemon) forkSize(ctx context.Context, res *Result, id string) error {
	const n = 10
	if d.proc == nil {
		res.note("The disk that a fork takes is measured on a daemon of the bench's own.")
		return nil
	}
	before, err := d.poolUsed()
	if err != nil {
		return err
	}
	ids, err := d.forks(ctx, id, n)
	defer func() { _ = d.removeAll(ctx, ids) }()
	if err != nil {
		return err
	}
	after, err := d.poolUsed()
	if err != nil {
		return err
	}
	res.add("disk of a fork", Ours, "KiB", float64(after-before)/n/1024)
	return nil
}

// poolUsed returns the bytes in use in the disk pool, which is mounted in the daemon's namespace only.
func (d *daemon) poolUsed() (int64, error) {
	root, err := unix.Open(filepath.Join("/proc", strconv.Itoa(d.proc.PID()), "root", d.dir, "runtime", "pool"),
		unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return 0, fmt.Errorf("opening the disk pool: %w", err)
	}
	defer unix.Close(root)
	var st unix.Statfs_t
	if err := unix.Syncfs(root); err != nil {
		return 0, err
	}
	if err := unix.Fstatfs(root, &st); err != nil {
		return 0, err
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, nil
}

// fork100 measures 100 forks that each run Python, beside 100 plain creates that do.
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
	script := "import numpy"
	if d.run(ctx, source.id, "python3", "-c", script) != nil {
		script = "pass"
	}
	res.note("Each container runs `python3 -c %q` with %d clients at once.", script, hands)
	if err := d.bash(ctx, source.id, "echo written >/tmp/file; echo written >/workspace/file"); err != nil {
		return err
	}
	var ids []string
	python := func(ctx context.Context) error {
		return each(ctx, len(ids), hands, func(ctx context.Context, i int) error {
			return d.run(ctx, ids[i], "python3", "-c", script)
		})
	}
	tidy := func(ctx context.Context) error {
		err := d.removeAll(ctx, ids)
		ids = nil
		return err
	}
	all := func(make func(context.Context) error) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			began := time.Now()
			err := make(ctx)
			if err == nil {
				err = python(ctx)
			}
			return time.Since(began).Seconds(), err
		}
	}
	forked, created := fmt.Sprintf("%d forks", n), fmt.Sprintf("%d plain creates", n)
	if err := b.inTurns(ctx, res, b.rounds(5), []*turn{
		{name: created, role: Ours, unit: "s", after: tidy, op: all(func(ctx context.Context) (err error) {
			ids, err = d.live(ctx, n)
			return err
		})},
		{name: forked, role: Ours, unit: "s", after: tidy, op: all(func(ctx context.Context) (err error) {
			ids, err = d.forks(ctx, source.id, n)
			return err
		})},
	}); err != nil {
		return err
	}
	res.against(forked, lower, created)
	return nil
}

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// gibibyte is how many MiB a GiB of the rows about snapshots has: fewer in a quick run.
func (b *bench) gibibyte() int {
	if b.Quick {
		return 16
	}
	return 1024
}

// sizeText returns a size in words.
func sizeText(mebibytes int) string {
	if mebibytes%1024 == 0 {
		return fmt.Sprintf("%d GiB", mebibytes/1024)
	}
	return fmt.Sprintf("%d MiB", mebibytes)
}

// writer writes to the workspace and to the layer a hundred times a second. It starts no programs, which would cost
// more than its writes.
const writer = "exec 3<> <(:); i=0; while :; do i=$((i+1)); echo $i >>/workspace/log; echo $i >>/tmp/log; " +
	"read -rt 0.01 -u 3; done"

// bulky creates a container with files, half in the workspace and half in the layer, and a command that goes on
// writing to both.
func (b *bench) bulky(ctx context.Context, d *daemon, mebibytes int) (id string, leave func(), err error) {
	id, err = d.create(ctx, proto.CreateContainer{Limits: proto.Limits{DiskBytes: int64(mebibytes+1024) << 20}})
	if err != nil {
		return "", func() {}, err
	}
	leave = func() { _ = d.remove(ctx, id) } // otherwise its lifetime ends it
	fill := fmt.Sprintf("for f in /workspace/bulk /tmp/bulk; do head -c %dM /dev/urandom >$f || exit; done; sync",
		mebibytes/2)
	if err = d.bash(ctx, id, fill); err == nil {
		_, err = d.Launch(ctx, id, proto.Cmd{Command: writer})
	}
	return id, leave, err
}

// amid is how many snapshots the second container of the row "snapshot" has.
const amid = 20

// snapshot measures how long it takes to snapshot a container of 1 GiB with a command that writes: one without other
// snapshots, and one with 20.
func (b *bench) snapshot(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	alone, among := "snapshot", fmt.Sprintf("snapshot, with %d", amid)
	turns := []*turn{{name: pingFloor, role: Floor, op: func(ctx context.Context) (float64, error) {
		return timed(func() error { return d.Ping(ctx) })
	}}}
	for _, name := range []string{alone, among} {
		id, leave, err := b.bulky(ctx, d, b.gibibyte())
		defer leave()
		if err != nil {
			return err
		}
		s := &snapper{daemon: d, id: id}
		defer s.dropAll(ctx)
		for name == among && len(s.kept) < amid {
			if _, err := s.take(ctx); err != nil {
				return err
			}
			s.kept, s.last = append(s.kept, s.last), ""
		}
		turns = append(turns, &turn{name: name, role: Ours, op: s.take, after: s.drop})
	}
	if err := b.inTurns(ctx, res, b.rounds(100), turns); err != nil {
		return err
	}
	res.median(alone, atMost(10))
	res.median(among, atMost(10))
	res.against(among, atMost(1.2), alone)
	res.tail(alone, lower)
	return nil
}

// A snapper takes snapshots of a container.
type snapper struct {
	*daemon
	id   string
	last string   // the newest snapshot, unless it was dropped
	kept []string // others
}

// take takes a snapshot and returns the time until the answer.
func (s *snapper) take(ctx context.Context) (float64, error) {
	return timed(func() error {
		snap, err := s.CreateSnapshot(ctx, s.id, proto.CreateSnapshot{})
		s.last = snap.ID
		return err
	})
}

// drop deletes the newest snapshot.
func (s *snapper) drop(ctx context.Context) error {
	if s.last == "" {
		return nil
	}
	err := s.DeleteSnapshot(ctx, s.last)
	s.last = ""
	return err
}

// dropAll deletes all snapshots; what fails is deleted with the container's.
func (s *snapper) dropAll(ctx context.Context) {
	for _, id := range append(s.kept, s.last) {
		if id != "" {
			_ = s.DeleteSnapshot(context.WithoutCancel(ctx), id)
		}
	}
}

// fork measures how long it takes to fork a container of 1 GiB and one of 5 GiB, until the answer, and what a fork
// takes on disk.
func (b *bench) fork(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	plain := &maker{daemon: d, pool: 1}
	turns := []*turn{{name: overHTTP, role: Ours, op: plain.make, after: plain.tidy}}
	sizes := []int{b.gibibyte(), 5 * b.gibibyte()}
	var ids, names []string
	for _, size := range sizes {
		id, leave, err := b.bulky(ctx, d, size)
		defer leave()
		if err != nil {
			return err
		}
		var forks []string
		name := "fork of " + sizeText(size)
		turns = append(turns, &turn{name: name, role: Ours, op: func(ctx context.Context) (float64, error) {
			return timed(func() (err error) {
				forks, err = d.forks(ctx, id, 1)
				return err
			})
		}, after: func(ctx context.Context) error {
			err := d.removeAll(ctx, forks)
			forks = nil
			return err
		}})
		ids, names = append(ids, id), append(names, name)
	}
	if err := b.inTurns(ctx, res, b.rounds(50), turns); err != nil {
		return err
	}
	res.against(names[0], lower, overHTTP)
	res.against(names[1], atMost(1.2), names[0])
	for i, id := range ids {
		if err := d.forkSize(ctx, res, id, "disk of a "+names[i]); err != nil {
			return err
		}
	}
	return nil
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
func (d *daemon) forkSize(ctx context.Context, res *Result, id, name string) error {
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
	res.add(name, Ours, "KiB", float64(after-before)/n/1024)
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

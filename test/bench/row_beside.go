package bench

import (
	"context"
	"fmt"

	"berth/proto"
)

// besideFiles are the numbers of files in the job's directory beside which the row "files" runs commands.
var besideFiles = []int{10, 1_000, 10_000, 100_000}

// files measures whether a command costs more in a directory with many files. The directories take turns with an empty
// one.
func (b *bench) files(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	sizes := besideFiles
	if b.Quick {
		sizes = sizes[:2]
	}
	turns, remove, err := d.besideEach(ctx, sizes)
	defer remove()
	if err != nil {
		return err
	}
	if err := b.inTurns(ctx, res, b.rounds(200), turns); err != nil {
		return err
	}
	for _, n := range sizes {
		res.against(beside(n, false), atMost(1.2), beside(0, false))
		res.against(beside(n, true), atMost(1.2), beside(0, true))
	}
	res.note("The files are empty and in one directory. A command changes none of them or writes a line into one. " +
		"Before, the end of a command walked up to 5,000 of them, and wrote the records of all if one had changed.")
	return nil
}

// beside names the turn of a number of files and a command that changes one of them or none.
func beside(files int, change bool) string {
	if change {
		return fmt.Sprintf("one of %d files changed", max(files, 1))
	}
	return fmt.Sprintf("%d files", files)
}

// besideEach makes a container for each number of files, one for none, and one for the file that is changed alone.
// remove removes those that were made.
func (d *daemon) besideEach(ctx context.Context, sizes []int) (turns []*turn, remove func(), err error) {
	var ids []string
	remove = func() {
		for _, id := range ids {
			_ = d.remove(ctx, id) // what is left ends with its lifetime
		}
	}
	for i, n := range append([]int{0, 0}, sizes...) {
		id, err := d.create(ctx, proto.CreateContainer{})
		if err != nil {
			return nil, remove, err
		}
		ids = append(ids, id)
		if n > 0 {
			if err := d.bash(ctx, id, fmt.Sprintf("seq %d | xargs touch", n)); err != nil {
				return nil, remove, err
			}
		}
		add := func(change bool, command string) {
			turns = append(turns, &turn{name: beside(n, change), role: Ours,
				op: func(ctx context.Context) (float64, error) {
					return timed(func() error { return d.bash(ctx, id, command) })
				}})
		}
		if i != 1 {
			add(false, nothing)
		}
		if i != 0 {
			add(true, "echo line >1")
		}
	}
	return turns, remove, nil
}

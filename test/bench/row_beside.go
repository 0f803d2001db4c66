package bench

import (
	"context"
	"fmt"

	"berth/proto"
)

// besideFiles are the numbers of files in the job's directory beside which the row "files" runs commands.
var besideFiles = []int{10, 1_000, 10_000, 100_000}

// files measures whether a command costs more in a directory with many files, for each runtime class that the daemon
// has. The directories take turns with an empty one of their class.
func (b *bench) files(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	sizes := besideFiles
	if b.Quick {
		sizes = sizes[:2]
	}
	var turns []*turn
	var classes []string
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		more, remove, err := d.besideEach(ctx, class, sizes)
		defer remove()
		if err != nil && class != proto.ClassRunc {
			res.Missing = append(res.Missing, Missing{string(class), err.Error()})
			continue
		}
		if err != nil {
			return err
		}
		turns, classes = append(turns, more...), append(classes, string(class))
	}
	if err := b.inTurns(ctx, res, b.rounds(200), turns); err != nil {
		return err
	}
	for _, class := range classes {
		for _, n := range sizes {
			res.against(beside(class, n), atMost(1.2), beside(class, 0))
		}
	}
	res.note("The files are empty and in one directory, in which no command changes anything. Before, the end of a " +
		"command walked up to 5,000 of them.")
	return nil
}

// beside names the turn of a class and a number of files.
func beside(class string, files int) string { return fmt.Sprintf("%s, %d files", class, files) }

// besideEach makes a container for each number of files, and one for none. remove removes those that were made.
func (d *daemon) besideEach(ctx context.Context, class proto.RuntimeClass, sizes []int) (turns []*turn, remove func(),
	err error) {
	var ids []string
	remove = func() {
		for _, id := range ids {
			_ = d.remove(ctx, id) // what is left ends with its lifetime
		}
	}
	for _, n := range append([]int{0}, sizes...) {
		id, err := d.create(ctx, proto.CreateContainer{RuntimeClass: class})
		if err != nil {
			return nil, remove, err
		}
		ids = append(ids, id)
		if n > 0 {
			if err := d.bash(ctx, id, fmt.Sprintf("seq %d | xargs touch", n)); err != nil {
				return nil, remove, err
			}
		}
		turns = append(turns, &turn{name: beside(string(class), n), role: Ours,
			op: func(ctx context.Context) (float64, error) {
				return timed(func() error { return d.bash(ctx, id, nothing) })
			}})
	}
	return turns, remove, nil
}

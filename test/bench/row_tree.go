package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// counted lists the events that are counted on the whole machine: their names in perf, and in the report.
var counted = [][2]string{
	{"syscalls:sys_enter_execve", "programs executed"}, {"syscalls:sys_enter_fdatasync", "fdatasync"},
	{"syscalls:sys_enter_fsync", "fsync"},
	{"syscalls:sys_enter_clone", "clone"}, switches,
}

var switches = [2]string{"context-switches", "context switches"}

// tree counts the work of the whole machine for one operation, including daemons. Other work on the machine is
// counted, too.
func (b *bench) tree(ctx context.Context, res *Result) error {
	if _, err := watch(ctx, func() error { return nil }); err != nil {
		return &skipped{"perf cannot count system calls here (" + err.Error() + "); `make setup-bench` installs " +
			"Debian's linux-perf, which needs root"}
	}
	d, s, id, err := b.beside(ctx, res)
	if err != nil {
		return err
	}
	defer d.leave(ctx)
	m := &maker{daemon: d}
	ops := []*turn{
		spawning(s, nothingArgv...),
		{name: "command", role: Ours, op: func(ctx context.Context) (float64, error) {
			return 0,
				d.bash(ctx, id, nothing)
		}},
		{name: "create and delete", role: Ours, op: m.make, after: m.tidy},
	}
	var others []*comparator
	for _, o := range execOthers {
		if c := b.other(ctx, res, o.name); c != nil {
			ops, others = append(ops, c.running(o.command, 1, "bash", "-c", nothing)), append(others, c)
		}
	}
	n := b.rounds(50)
	for _, op := range ops {
		if _, err := op.once(ctx); err != nil { // do not count what happens only the first time
			return err
		}
		counts, err := watch(ctx, func() error {
			for range n {
				if _, err := op.once(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, c := range counted {
			res.add(op.name+": "+c[1], op.role, "each", counts[i]/float64(n))
		}
	}
	if err := b.treeOfLines(ctx, res); err != nil {
		return err
	}
	if err := b.mountsOf(ctx, res, d, others); err != nil {
		return err
	}
	res.note("Counted by perf on the whole machine over %d operations of a kind, so what else ran is in it; creates "+
		"fill the pool again meanwhile.", n)
	return nil
}

// treeOfLines counts context switches while lines come every 2 ms.
func (b *bench) treeOfLines(ctx context.Context, res *Result) error {
	all, closed, err := b.tickings(ctx, res)
	if err != nil {
		return err
	}
	defer closed()
	lines := b.rounds(500)
	for _, t := range all {
		counts, err := watch(ctx, func() error { _, err := t.run(ctx, lines); return err })
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		i := slices.Index(counted, switches)
		res.add("a streamed line, "+t.name+": "+switches[1], t.role, "each", counts[i]/float64(lines))
	}
	return nil
}

// mountsOf counts the mounts of a container that are visible on the whole machine.
func (b *bench) mountsOf(ctx context.Context, res *Result, d *daemon, others []*comparator) error {
	mounts := func() float64 {
		table, _ := os.ReadFile("/proc/self/mountinfo")
		return float64(bytes.Count(table, []byte("\n")))
	}
	before := mounts()
	ids, err := d.live(ctx, 1)
	now := mounts()
	if err := errors.Join(err, d.removeAll(ctx, ids)); err != nil {
		return err
	}
	res.add("create: mounts on the host", Ours, "each", now-before)
	for _, c := range others {
		before := mounts()
		_, undo, err := c.many(ctx, 1)
		now := mounts()
		if err := errors.Join(err, undo()); err != nil {
			res.Missing = append(res.Missing, Missing{"mounts of " + c.name, err.Error()})
			continue
		}
		res.add(c.name+", create: mounts on the host", Comparator, "each", now-before)
	}
	return nil
}

// watch counts events while do runs. perf begins to count when it starts the program that it is given. That program
// is a cat: when it returns a line, perf has begun.
func watch(ctx context.Context, do func() error) ([]float64, error) {
	perf, err := exec.LookPath("perf")
	if err != nil {
		return nil, errors.New("there is no perf")
	}
	var names []string
	for _, c := range counted {
		names = append(names, c[0])
	}
	cmd := exec.CommandContext(ctx, perf, "stat", "-a", "-x", ",", "-e", strings.Join(names, ","), "--", "cat")
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_, err = io.WriteString(in, "\n")
	if err == nil {
		_, err = bufio.NewReader(out).ReadByte()
	}
	if err == nil {
		err = do()
	}
	_ = in.Close() // ends cat; fails if cat has ended
	if werr := cmd.Wait(); err == nil || werr != nil {
		err = explain(werr, perf, said.Bytes())
	}
	if err != nil {
		return nil, err
	}
	return parsePerf(said.String())
}

// parsePerf parses perf's table: count, unit, name.
func parsePerf(text string) ([]float64, error) {
	counts, found := make([]float64, len(counted)), 0
	for line := range strings.Lines(text) {
		fields := strings.Split(line, ",")
		for i, c := range counted {
			if len(fields) > 2 && fields[2] == c[0] {
				v, err := strconv.ParseFloat(fields[0], 64)
				if err != nil {
					return nil, fmt.Errorf("perf does not count %s: %s", c[0], fields[0])
				}
				counts[i], found = v, found+1
			}
		}
	}
	if found < len(counted) {
		return nil, fmt.Errorf("perf said %q", text)
	}
	return counts, nil
}

package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// counted is what the whole machine is watched for, as perf names it, and as the report does.
var counted = [][2]string{
	{"syscalls:sys_enter_execve", "programs executed"}, {"syscalls:sys_enter_fdatasync", "fdatasync"}, {"syscalls:sys_enter_fsync", "fsync"},
	{"syscalls:sys_enter_clone", "clone"}, {"context-switches", "context switches"},
}

// tree is what the machine does for one operation, daemons and all. Other work on it is counted too.
func (b *bench) tree(ctx context.Context, res *Result) error {
	if _, err := watch(ctx, func() error { return nil }); err != nil {
		return &skipped{"perf cannot count system calls here (" + err.Error() + "); `make setup-bench` installs Debian's linux-perf, which needs root"}
	}
	d, s, id, err := b.beside(ctx, res)
	if err != nil {
		return err
	}
	defer d.leave(ctx)
	m := &maker{daemon: d}
	ops := []*turn{
		spawning(s, nothingArgv...),
		{name: "command", role: Ours, op: func(ctx context.Context) (float64, error) { return 0, d.bash(ctx, id, nothing) }},
		{name: "create and delete", role: Ours, op: m.make, after: m.tidy},
	}
	for _, o := range execOthers {
		if c := b.other(ctx, res, o.name); c != nil {
			ops = append(ops, c.running(o.command, 1, "bash", "-c", nothing))
		}
	}
	n := b.rounds(50)
	for _, op := range ops {
		if _, err := op.once(ctx); err != nil { // what happens the first time only is not counted
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
	res.note("Counted by perf on the whole machine over %d operations of a kind, so what else ran is in it; creates fill the pool again meanwhile.", n)
	return nil
}

// watch counts while do runs. Perf counts from when the program starts that it is given: a cat, which tells that it has by giving a line back.
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
	_ = in.Close() // ends cat, or it has ended
	if werr := cmd.Wait(); err == nil || werr != nil {
		err = explain(werr, perf, said.Bytes())
	}
	if err != nil {
		return nil, err
	}
	return parsePerf(said.String())
}

// parsePerf reads perf's table: the count first, then a unit, then the name.
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

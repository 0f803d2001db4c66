package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/proto"

	"golang.org/x/sys/unix"
)

// ticker writes its clock in nanoseconds, one line every 2 ms. Containers have the host's clock.
const ticker = "import os,sys,time\nfor _ in range(int(sys.argv[1])):\n time.sleep(0.002)\n " +
	"os.write(1,b'%d\\n'%time.time_ns())"

// age returns how long ago a line was written, in ms.
func age(line string) (float64, error) {
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return float64(time.Now().UnixNano()-ns) / 1e6, err
}

// A ticking runs the ticker for a number of lines. It returns the age of each line on arrival.
type ticking struct {
	name string
	role Role
	run  func(ctx context.Context, lines int) ([]float64, error)
}

// tickings returns those of the bare machine, of ours over a connection that closed closes, and of comparators.
func (b *bench) tickings(ctx context.Context, res *Result) (all []ticking, closed func(), err error) {
	d, s, id, err := b.beside(ctx, res)
	if err != nil {
		return nil, nil, err
	}
	live, err := d.Live(ctx, id)
	if err != nil {
		d.leave(ctx)
		return nil, nil, err
	}
	piped := func(pipe func(func(io.Reader) error, ...string) error, lines int) (ages []float64, err error) {
		err = pipe(func(r io.Reader) (err error) { ages, err = agesOf(r); return err }, tick(lines)...)
		return ages, err
	}
	all = []ticking{
		{barePipe, Floor, func(_ context.Context, lines int) ([]float64, error) { return piped(s.pipe, lines) }},
		{overLive, Ours, func(ctx context.Context, lines int) (ages []float64, err error) {
			var bad error
			end, err := finish(ctx, live, fresh(), proto.Cmd{Argv: tick(lines)}, func(e proto.Event) {
				// One event may have several lines, each with its own time.
				more, err := agesOf(bytes.NewReader(e.DataBase64))
				ages, bad = append(ages, more...), errors.Join(bad, err)
			})
			if err == nil {
				err = cmp.Or(succeeded(end), bad)
			}
			return ages, err
		}},
	}
	if c := b.other(ctx, res, "docker"); c != nil {
		all = append(all, ticking{dockerExec, Comparator, func(ctx context.Context, lines int) ([]float64, error) {
			return piped(func(take func(io.Reader) error, argv ...string) error { return c.pipe(ctx, take, argv...) },
				lines)
		}})
	}
	return all, func() { _ = live.Close(); d.leave(ctx) }, nil // all output was read
}

// Names of the participants in rows about output.
const (
	barePipe   = "bare pipe"
	dockerExec = "docker exec"
)

func tick(lines int) []string { return []string{"/usr/bin/python3", "-c", ticker, strconv.Itoa(lines)} }

// agesOf reads lines and returns the age of each.
func agesOf(r io.Reader) (ages []float64, err error) {
	in := bufio.NewScanner(r)
	for in.Scan() {
		ms, err := age(in.Text())
		if err != nil {
			return nil, err
		}
		ages = append(ages, ms)
	}
	return ages, in.Err()
}

// line measures the latency of one line, from the write in the container to the client.
func (b *bench) line(ctx context.Context, res *Result) error {
	all, closed, err := b.tickings(ctx, res)
	if err != nil {
		return err
	}
	defer closed()
	lines := b.rounds(250)
	ages := map[string][]float64{}
	for range b.rounds(5) {
		for i, t := range all {
			came, err := t.run(ctx, lines)
			if err == nil && len(came) != lines {
				err = fmt.Errorf("%d lines came of %d", len(came), lines)
			}
			if err != nil && t.role == Comparator && ctx.Err() == nil {
				res.Missing = append(res.Missing, Missing{t.name, err.Error()})
				all = slices.Delete(all, i, i+1) // it is the last one
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			ages[t.name] = append(ages[t.name], came...)
		}
	}
	for _, t := range all {
		res.add(t.name, t.role, "ms", ages[t.name]...)
	}
	res.against(overLive, atMost(5), barePipe)
	res.against(overLive, lower, dockerExec)
	res.tail(overLive, lower)
	return nil
}

// bulk measures the throughput of output.
func (b *bench) bulk(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	s, err := b.bare(ctx, res)
	if err != nil {
		return err
	}
	m, leave, err := d.one(ctx)
	if err != nil {
		return err
	}
	defer leave()
	mib := b.megabytes() / 2
	data := text(mib << 20)
	file := filepath.Join(b.tmp, "text")
	if s.root != "" {
		file = filepath.Join(s.root, "text")
	}
	defer os.Remove(file)
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return err
	}
	if _, err := d.FS(m.id, proto.UserDefault).Write(ctx, "/workspace/text", 0, strings.NewReader(string(data)),
		int64(len(data))); err != nil {
		return err
	}
	unix.Sync() // otherwise the kernel would write both files to disk during the first rounds
	live, err := d.Live(ctx, m.id)
	if err != nil {
		return err
	}
	defer live.Close()
	counting := func(n *int64) func(io.Reader) error {
		return func(r io.Reader) (err error) {
			*n, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 64<<10))
			return err
		}
	}
	speed := func(do func() (int64, error)) (float64, error) {
		var n int64
		took, err := timed(func() (err error) { n, err = do(); return err })
		if err == nil && n != int64(len(data)) {
			err = fmt.Errorf("%d bytes came of %d", n, len(data))
		}
		return float64(mib) / took * 1000, err
	}
	round := 0
	turns := []*turn{
		{name: barePipe, role: Floor, unit: "MiB/s", op: func(context.Context) (float64, error) {
			return speed(func() (n int64, err error) {
				err = s.pipe(counting(&n), "/bin/cat", strings.TrimPrefix(file, s.root))
				return n, err
			})
		}},
		{name: overLive, role: Ours, unit: "MiB/s", loud: true, op: func(ctx context.Context) (float64, error) {
			round++
			return speed(func() (n int64, err error) {
				cmd := proto.Cmd{Argv: []string{"/bin/cat", "/workspace/text"}, OnOutputLimit: proto.OutputWait}
				end, err := finish(ctx, live, strconv.Itoa(round), cmd, func(e proto.Event) {
					n += int64(len(e.DataBase64))
				})
				if err == nil {
					err = succeeded(end)
				}
				return n, err
			})
		}},
	}
	if c := b.other(ctx, res, "docker"); c != nil {
		const copied = "/tmp/text"
		id, err := c.container(ctx)
		if err == nil {
			// otherwise it is removed with the container
			defer func() { _ = c.do(context.WithoutCancel(ctx), c.exec(id, "rm", "-f", copied)) }()
			err = c.do(ctx, c.send(id, file, copied))
		}
		turns = append(turns, &turn{name: dockerExec, role: Comparator, unit: "MiB/s", every: 3,
			op: func(ctx context.Context) (float64, error) {
				if err != nil {
					return 0, err
				}
				return speed(func() (n int64, err error) {
					err = c.pipe(ctx, counting(&n), "/bin/cat", copied)
					return n, err
				})
			}})
	}
	if err := b.inTurns(ctx, res, b.rounds(15), turns); err != nil {
		return err
	}
	res.against(overLive, atLeast(0.5), barePipe)
	res.against(overLive, more, dockerExec)
	res.note(
		"%d MiB of text from a file in the page cache, all of it to the client: the command waits where that is slower.", mib)
	return nil
}

// text returns bulk output: lines like those of programs.
func text(size int) []byte {
	line := []byte("2026-01-01 12:00:00 worker 7: processed 1234 records of the batch in 56 ms\n")
	return bytes.Repeat(line, size/len(line)+1)[:size]
}

// pipe runs a bare command and passes its output to take.
func (s spawn) pipe(take func(io.Reader) error, argv ...string) (err error) {
	return pipe(s.command(argv...), take)
}

func pipe(cmd *exec.Cmd, take func(io.Reader) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd.Stdout = w
	if err = cmd.Start(); err != nil {
		return errors.Join(err, w.Close())
	}
	err = errors.Join(w.Close(), take(r))
	var status *exec.ExitError
	if werr := cmd.Wait(); errors.As(werr, &status) || err == nil {
		err = errors.Join(err, werr)
	}
	return err
}

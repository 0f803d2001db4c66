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
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/proto"

	"golang.org/x/sys/unix"
)

// ticker writes its clock, in nanoseconds, line by line, 2 ms apart. Containers have the host's clock.
const ticker = "import os,sys,time\nfor _ in range(int(sys.argv[1])):\n time.sleep(0.002)\n os.write(1,b'%d\\n'%time.time_ns())"

// age is how long ago a line was written, in ms.
func age(line string) (float64, error) {
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return float64(time.Now().UnixNano()-ns) / 1e6, err
}

// line is the way of one line, from the write in the container to the client.
func (b *bench) line(ctx context.Context, res *Result) error {
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
	var bare, ours []float64
	lines := strconv.Itoa(b.rounds(250))
	argv := []string{"/usr/bin/python3", "-c", ticker, lines}
	for round := range b.rounds(5) {
		err := s.pipe(func(r io.Reader) error {
			for in := bufio.NewScanner(r); in.Scan(); {
				ms, err := age(in.Text())
				if err != nil {
					return err
				}
				bare = append(bare, ms)
			}
			return nil
		}, argv...)
		if err != nil {
			return err
		}
		var bad error
		end, err := finish(ctx, live, strconv.Itoa(round), proto.Cmd{Argv: argv}, func(e proto.Event) {
			// Several lines may come as one event; each is as old as it says.
			for line := range strings.Lines(string(e.DataBase64)) {
				ms, err := age(line)
				if err != nil {
					bad = err
				}
				ours = append(ours, ms)
			}
		})
		if err == nil {
			err = succeeded(end)
		}
		if err == nil {
			err = bad
		}
		if err != nil {
			return err
		}
	}
	if len(ours) != len(bare) {
		return fmt.Errorf("%d lines came of %d", len(ours), len(bare))
	}
	res.add("bare pipe", Floor, "ms", bare...)
	res.add(overLive, Ours, "ms", ours...)
	res.against(overLive, atMost(5), "bare pipe")
	res.tail(overLive, lower)
	return nil
}

// bulk is output as fast as it comes.
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
	if _, err := d.FS(m.id, proto.UserDefault).Write(ctx, "/workspace/text", 0, strings.NewReader(string(data)), int64(len(data))); err != nil {
		return err
	}
	unix.Sync() // else the kernel writes both files while the first rounds are measured
	live, err := d.Live(ctx, m.id)
	if err != nil {
		return err
	}
	defer live.Close()
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
		{name: "bare pipe", role: Floor, unit: "MiB/s", op: func(context.Context) (float64, error) {
			return speed(func() (n int64, err error) {
				err = s.pipe(func(r io.Reader) (err error) {
					n, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 64<<10))
					return err
				}, "/bin/cat", strings.TrimPrefix(file, s.root))
				return n, err
			})
		}},
		{name: overLive, role: Ours, unit: "MiB/s", loud: true, op: func(ctx context.Context) (float64, error) {
			round++
			return speed(func() (n int64, err error) {
				cmd := proto.Cmd{Argv: []string{"/bin/cat", "/workspace/text"}, OnOutputLimit: proto.OutputWait}
				end, err := finish(ctx, live, strconv.Itoa(round), cmd, func(e proto.Event) { n += int64(len(e.DataBase64)) })
				if err == nil {
					err = succeeded(end)
				}
				return n, err
			})
		}},
	}
	if err := b.inTurns(ctx, res, b.rounds(15), turns); err != nil {
		return err
	}
	res.against(overLive, atLeast(0.5), "bare pipe")
	res.note("%d MiB of text from a file in the page cache, all of it to the client: the command waits where that is slower.", mib)
	return nil
}

// text is what bulk output is made of: lines as programs write them.
func text(size int) []byte {
	line := []byte("2026-01-01 12:00:00 worker 7: processed 1234 records of the batch in 56 ms\n")
	return bytes.Repeat(line, size/len(line)+1)[:size]
}

// pipe runs a bare command and gives what it writes to take.
func (s spawn) pipe(take func(io.Reader) error, argv ...string) (err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := s.command(argv...)
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

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/proto"
)

// pause measures how fast a paused container resumes.
func (b *bench) pause(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	m, leave, err := d.one(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := d.Pause(ctx, m.id); proto.CodeOf(err) == proto.NotFound || proto.CodeOf(err) == proto.Unsupported {
		return &skipped{"this daemon cannot pause: " + err.Error()}
	}
	f, err := newFreezer()
	if err != nil {
		return &skipped{"there is no freezer to compare with: " + err.Error()}
	}
	defer f.close()
	paused := func(name string, do func(context.Context) error) *turn {
		return &turn{name: name, role: Ours,
			before: func(ctx context.Context) error { _, err := d.Pause(ctx, m.id); return err },
			op:     func(ctx context.Context) (float64, error) { return timed(func() error { return do(ctx) }) }}
	}
	resume := func(ctx context.Context) error { _, err := d.Resume(ctx, m.id); return err }
	wake := func(ctx context.Context) error { return d.bash(ctx, m.id, nothing) }
	turns := []*turn{
		{name: pingFloor, role: Floor, op: func(ctx context.Context) (float64, error) {
			return timed(func() error { return d.Ping(ctx) })
		}},
		{name: "bare thaw", role: Floor, op: f.thaw},
		paused("resume", resume),
		paused("a command that wakes", wake),
		{name: "pause", role: Ours, op: func(ctx context.Context) (float64, error) {
			return timed(func() error { _, err := d.Pause(ctx, m.id); return err })
		}, after: resume},
	}
	if err := b.inTurns(ctx, res, b.rounds(200), turns); err != nil {
		return err
	}
	res.ratio("resume / (ping + bare thaw)", res.measure("resume"), sum(res.measure(pingFloor),
		res.measure("bare thaw")), atMost(3))
	res.tail("resume", lower)
	n := b.live(res, 200, 5, 4)
	among := fmt.Sprintf(", one of %d", n)
	ids, err := d.live(ctx, n-1)
	defer func() { _ = d.removeAll(ctx, ids) }() // otherwise their lifetime ends them
	if err == nil {
		err = each(ctx, len(ids), hands, func(ctx context.Context, i int) error {
			_, err := d.Pause(ctx, ids[i])
			return err
		})
	}
	if err != nil {
		return err
	}
	if err := b.inTurns(ctx, res, b.rounds(100), []*turn{paused("resume"+among, resume),
		paused("a command that wakes"+among, wake)}); err != nil {
		return err
	}
	res.against("resume"+among, lower, "resume")
	res.against("a command that wakes"+among, lower, "a command that wakes")
	return nil
}

// A freezer is a bare cgroup with a sleeping process.
type freezer struct {
	dir, file    string
	stop, resume string // values written to file
	cmd          *exec.Cmd
}

func newFreezer() (*freezer, error) {
	name := "berth-bench-" + strconv.Itoa(os.Getpid())
	f := &freezer{dir: filepath.Join("/sys/fs/cgroup/freezer", name), file: "freezer.state", stop: "FROZEN",
		resume: "THAWED"}
	if cgroups() == "v2" {
		f = &freezer{dir: filepath.Join("/sys/fs/cgroup", name), file: "cgroup.freeze", stop: "1", resume: "0"}
	}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		return nil, err
	}
	f.cmd = exec.Command("sleep", "infinity")
	if err := f.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.Remove(f.dir))
	}
	if err := f.write("cgroup.procs", strconv.Itoa(f.cmd.Process.Pid)); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *freezer) write(file, text string) error {
	return os.WriteFile(filepath.Join(f.dir, file), []byte(text), 0)
}

// frozen reports whether all processes are frozen.
func (f *freezer) frozen() bool {
	if f.stop == "1" {
		events, _ := os.ReadFile(filepath.Join(f.dir, "cgroup.events"))
		return strings.Contains(string(events), "frozen 1")
	}
	state, _ := os.ReadFile(filepath.Join(f.dir, f.file))
	return strings.TrimSpace(string(state)) == f.stop
}

// freezeMost limits how long freezing a sleeping process may take.
const freezeMost = 5 * time.Second

// thaw returns how long the write takes that resumes a frozen process.
func (f *freezer) thaw(context.Context) (float64, error) {
	if err := f.write(f.file, f.stop); err != nil {
		return 0, err
	}
	for began := time.Now(); !f.frozen(); { // poll: v1 has no event
		if time.Since(began) > freezeMost {
			return 0, fmt.Errorf("a bare process does not freeze within %v", freezeMost)
		}
	}
	return timed(func() error { return f.write(f.file, f.resume) })
}

// close ends the process and removes the cgroup. It waits until the process has left the cgroup.
func (f *freezer) close() {
	_ = f.write(f.file, f.resume) // v1 cannot kill a frozen process
	_ = f.cmd.Process.Kill()
	_ = f.cmd.Wait() // the error says that it was killed
	for range 100 {
		if err := os.Remove(f.dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

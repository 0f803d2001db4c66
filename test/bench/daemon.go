package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/client"
	"berth/proto"
	"berth/test/launch"
)

// A daemon is what is measured.
type daemon struct {
	*client.Client
	proc  *launch.Process // nil: it was there before us
	dir   string          // of its data, where it is ours
	flags []string

	mu  sync.Mutex
	box string // a container for commands, made when first asked for
}

// daemon is the one to measure. Where flags are given, or there is none to use, that is one of our own, which stays
// until other flags are asked for.
func (b *bench) daemon(ctx context.Context, flags ...string) (*daemon, error) {
	if !b.Self && len(flags) == 0 {
		if b.shared == nil {
			b.shared = &daemon{Client: b.Client}
		}
		return b.shared, nil
	}
	if b.own != nil && slices.Equal(b.own.flags, flags) {
		return b.own, nil
	}
	b.stopOwn()
	d, err := b.private(ctx, flags...)
	if err == nil {
		b.own = d
	}
	return d, err
}

// private starts a daemon with a data directory of its own and the base image.
func (b *bench) private(ctx context.Context, flags ...string) (*daemon, error) {
	switch {
	case b.Base == "":
		return nil, &skipped{"it needs a daemon with flags of its own, and for that the base image: --base FILE"}
	case os.Geteuid() != 0:
		return nil, &skipped{"it needs a daemon with flags of its own, and for that root"}
	}
	dir, err := os.MkdirTemp(b.tmp, "data-")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, flags: flags}
	if err := b.start(d); err != nil {
		return nil, err
	}
	b.part(ctx, "runc", filepath.Join(filepath.Dir(b.Program), "runc"))
	err = d.importBase(ctx, b.Base)
	// it fills at its start, beside what is to be measured
	if pools := b.poolFlags(0, 0); err == nil && pools != nil && !slices.Equal(flags, pools) {
		err = d.filled(ctx, 1)
	}
	if err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// start starts a private daemon, or starts it again.
func (b *bench) start(d *daemon) (err error) {
	flags := append([]string{"--stop-on-exit", "--bin", filepath.Dir(b.Program)}, d.flags...)
	proc, err := launch.Start(b.Program, d.dir, flags, nil)
	if err != nil {
		return err // the one before, if there was one, has ended
	}
	d.proc = proc
	d.Client, err = client.New(client.Config{Host: d.proc.URL, Key: d.proc.Key, Agent: "berth-bench"})
	return err
}

// stopOwn ends the private daemon with its containers.
func (b *bench) stopOwn() {
	if b.own != nil {
		b.own.stop()
		b.own = nil
	}
}

// kill ends a private daemon as a crash would. Its containers go on.
func (d *daemon) kill() { d.proc.Stop(syscall.SIGKILL) }

// stop ends a private daemon, its containers and its data.
func (d *daemon) stop() {
	d.proc.Stop(syscall.SIGTERM)
	_ = os.RemoveAll(d.dir) // what stays goes with the bench's own directory
}

func (d *daemon) importBase(ctx context.Context, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = d.ImportImage(ctx, "base", f, 0, nil)
	return err
}

// lifetime is the longest that a container of ours stays, in seconds, should nobody be left to delete it.
const lifetime = 2 * 60 * 60

// create makes a container.
func (d *daemon) create(ctx context.Context, req proto.CreateContainer) (string, error) {
	req.MaxLifetimeSeconds, req.IdleTimeoutSeconds = lifetime, lifetime
	req.Labels = map[string]string{"berth-bench": "1"}
	con, err := d.Create(ctx, req)
	return con.ID, err
}

// remove deletes a container, also when ctx has ended: a running daemon must not be left with what we made.
func (d *daemon) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_, err := d.Delete(ctx, id, false)
	return err
}

// container is one that runs already, for commands.
func (d *daemon) container(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.box != "" {
		return d.box, nil
	}
	id, err := d.create(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	d.box = id
	return id, nil
}

// leave deletes that container, where the daemon stays.
func (d *daemon) leave(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proc == nil && d.box != "" {
		_ = d.remove(ctx, d.box) // its lifetime ends it
		d.box = ""
	}
}

// succeeded says what is wrong with a command's end.
func succeeded(res proto.ExecResult) error {
	switch r := res.Result.Result; {
	case r == nil:
		return fmt.Errorf("a command ended as %s", res.Exec.State)
	case r.ReturnCode != 0:
		return fmt.Errorf("a command returned %d: %s", r.ReturnCode, r.Stderr)
	}
	return nil
}

// poolFlags are those of a pool with at least min and at most max containers, if this berth has pools.
func (b *bench) poolFlags(least, most int) []string {
	help, err := exec.Command(b.Program, "serve", "--help").Output()
	if err != nil || !bytes.Contains(help, []byte("--warm-min")) {
		return nil
	}
	return []string{"--warm-min", strconv.Itoa(least), "--warm-max", strconv.Itoa(most)}
}

// metric adds up the samples of a metric whose labels have all of the given texts. It tells whether there is one.
func metric(text, name string, labels ...string) (total float64, found bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		fields := strings.Fields(rest)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		total, found = total+v, true
	}
	return total, found
}

// A pool is what a daemon tells of its warm containers.
type pool struct {
	there         bool // this berth has pools
	ready, making int
	hits, misses  int // creates that found one and that found none, ever
}

// pool reads it.
func (d *daemon) pool(ctx context.Context) (p pool, err error) {
	text, err := d.Metrics(ctx)
	if err != nil {
		return p, err
	}
	count := func(name, label string) int {
		v, found := metric(text, name, label)
		p.there = p.there || found
		return int(v)
	}
	p.ready, p.making = count("berth_warm_members", `state="ready"`), count("berth_warm_members", `state="starting"`)
	p.hits, p.misses = count("berth_warm_starts_total", `warm="hit"`), count("berth_warm_starts_total", `warm="miss"`)
	return p, nil
}

// Waits for a pool. One that has nothing and makes nothing for so long is switched off; one that has enough and makes
// more all the while is not waited for longer.
const (
	poolWait = 3 * time.Minute
	poolOff  = 5 * time.Second
	poolBusy = 10 * time.Second
)

// filled waits until the pool has n containers to give and makes no more: that would be measured too. A daemon
// without a pool is ready at once. The daemon has no event for it, so its metrics are asked.
func (d *daemon) filled(ctx context.Context, n int) error {
	began, busy := time.Now(), time.Now()
	for {
		p, err := d.pool(ctx)
		switch {
		case err != nil:
			return err
		case !p.there || time.Since(busy) > poolOff, p.ready >= n && (p.making == 0 || time.Since(began) > poolBusy):
			return nil
		case time.Since(began) > poolWait:
			return fmt.Errorf("the pool has %d of %d containers after %v", p.ready, n, poolWait)
		case p.ready+p.making > 0:
			busy = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

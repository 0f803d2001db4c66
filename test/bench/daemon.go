package bench

import (
	"bytes"
	"cmp"
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

// A daemon is a measured daemon.
type daemon struct {
	*client.Client
	class proto.RuntimeClass // of its measured containers
	proc  *launch.Process    // nil: not started by the bench
	dir   string             // its data directory, if the bench started it
	flags []string

	mu  sync.Mutex
	box string // a container for commands, created on first use
}

// daemon returns the daemon to measure. If there are flags, or no daemon to use, it starts a private one. That one
// stays until other flags are requested.
func (b *bench) daemon(ctx context.Context, flags ...string) (*daemon, error) {
	if !b.Self && len(flags) == 0 {
		if b.shared == nil {
			b.shared = &daemon{Client: b.Client, class: b.Class}
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

// private starts a daemon with its own data directory and the base image.
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
	d := &daemon{dir: dir, flags: flags, class: b.Class}
	if err := b.start(d); err != nil {
		return nil, err
	}
	b.part(ctx, "runc", filepath.Join(filepath.Dir(b.Program), "runc"))
	err = d.importBase(ctx, b.Base)
	// a pool would fill at the start and disturb the measurement
	if pools := b.poolFlags(0, 0); err == nil && pools != nil && !slices.Equal(flags, pools) {
		err = d.filled(ctx, 1)
	}
	if err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// start starts or restarts a private daemon.
func (b *bench) start(d *daemon) (err error) {
	flags := append([]string{"--stop-on-exit", "--bin", filepath.Dir(b.Program)}, d.flags...)
	if d.class != "" {
		flags = append(flags, "--runtime-class", string(d.class))
	}
	proc, err := launch.Start(b.Program, d.dir, flags, nil)
	if err != nil {
		return err // an earlier process has already ended
	}
	d.proc = proc
	d.Client, err = client.New(client.Config{Host: d.proc.URL, Key: d.proc.Key, Agent: "berth-bench"})
	return err
}

// stopOwn stops the private daemon and its containers.
func (b *bench) stopOwn() {
	if b.own != nil {
		b.own.stop()
		b.own = nil
	}
}

// kill ends a private daemon like a crash. Its containers keep running.
func (d *daemon) kill() { d.proc.Stop(syscall.SIGKILL) }

// stop stops a private daemon and its containers, and removes its data.
func (d *daemon) stop() {
	d.proc.Stop(syscall.SIGTERM)
	_ = os.RemoveAll(d.dir) // what remains is removed with the bench's directory
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

// lifetime is the maximum lifetime of a measured container in seconds, in case the bench cannot delete it.
const lifetime = 2 * 60 * 60

// create creates a container.
func (d *daemon) create(ctx context.Context, req proto.CreateContainer) (string, error) {
	req.MaxLifetimeSeconds, req.IdleTimeoutSeconds = lifetime, lifetime
	req.Labels = map[string]string{"berth-bench": "1"}
	req.RuntimeClass = cmp.Or(req.RuntimeClass, d.class)
	con, err := d.Create(ctx, req)
	return con.ID, err
}

// remove deletes a container even if ctx has ended, so that nothing is left on a shared daemon.
func (d *daemon) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_, err := d.Delete(ctx, id, false)
	return err
}

// container returns a running container for commands.
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

// leave deletes that container if the daemon stays.
func (d *daemon) leave(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proc == nil && d.box != "" {
		_ = d.remove(ctx, d.box) // otherwise its lifetime ends it
		d.box = ""
	}
}

// succeeded returns an error if a command did not succeed.
func succeeded(res proto.ExecResult) error {
	switch r := res.Result.Result; {
	case r == nil:
		return fmt.Errorf("a command ended as %s", res.Exec.State)
	case r.ReturnCode != 0:
		return fmt.Errorf("a command returned %d: %s", r.ReturnCode, r.Stderr)
	}
	return nil
}

// poolFlags returns the flags for a pool with least to most containers, or nil if this berth has no pools.
func (b *bench) poolFlags(least, most int) []string {
	help, err := exec.Command(b.Program, "serve", "--help").Output()
	if err != nil || !bytes.Contains(help, []byte("--warm-min")) {
		return nil
	}
	return []string{"--warm-min", strconv.Itoa(least), "--warm-max", strconv.Itoa(most)}
}

// metric sums the samples of a metric whose labels contain all given texts. found reports whether there is one.
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

// A pool is the state of a daemon's pool.
type pool struct {
	there         bool // this berth has pools
	ready, making int
	hits, misses  int // creates that were served from the pool, and that were not, since the start
}

// pool reads the state of the pool.
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

// Wait times for a pool. A pool that stays empty and creates nothing for the first time counts as switched off. A
// pool that has enough containers but keeps creating more is waited for no longer than the second time.
const (
	poolWait = 3 * time.Minute
	poolOff  = 5 * time.Second
	poolBusy = 10 * time.Second
)

// filled waits until the pool has n containers and creates no more, since that would disturb the measurement. It
// returns at once for a daemon without a pool. It polls the metrics because the daemon has no event for this.
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

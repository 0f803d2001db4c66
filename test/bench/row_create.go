package bench

import (
	"context"
	"os"
	"strconv"

	"berth/proto"
)

const (
	pingFloor = "ping"
	syncFloor = "fdatasync 4 KiB"
)

// floors returns the floors for a create: a request and answer, and a durable write.
func (b *bench) floors(d *daemon) (turns []*turn, done func(), err error) {
	s, err := b.syncing()
	if err != nil {
		return nil, nil, err
	}
	filled := func(ctx context.Context) error { return d.filled(ctx, 1) } // wait until the pool has refilled
	return []*turn{
		{name: pingFloor, role: Floor, before: filled, op: func(ctx context.Context) (float64, error) {
			return timed(func() error { return d.Ping(ctx) })
		}},
		{name: syncFloor, role: Floor, before: filled, op: s.once},
	}, s.close, nil
}

// A maker creates containers, one after the other.
type maker struct {
	*daemon
	req  proto.CreateContainer
	pool int // containers that the pool must have before each create
	keep bool
	id   string

	count int // number of creates
}

// make creates a container and returns the time until the answer.
func (m *maker) make(ctx context.Context) (float64, error) {
	m.id = ""
	if m.pool > 0 {
		if err := m.filled(ctx, m.pool); err != nil {
			return 0, err
		}
	}
	m.count++
	return timed(func() (err error) {
		m.id, err = m.create(ctx, m.req)
		return err
	})
}

// one creates the container of a whole row.
func (d *daemon) one(ctx context.Context) (m *maker, leave func(), err error) {
	m = &maker{daemon: d}
	_, err = m.make(ctx)
	return m, func() { _ = m.tidy(ctx) }, err // otherwise its lifetime ends it
}

// use creates a container, runs a first command, and returns the time until that has ended.
func (m *maker) use(ctx context.Context) (float64, error) {
	took, err := m.make(ctx)
	if err != nil {
		return took, err
	}
	more, err := timed(func() error { return m.bash(ctx, m.id, nothing) })
	return took + more, err
}

// tidy deletes the container.
func (m *maker) tidy(ctx context.Context) error {
	if m.id == "" {
		return nil
	}
	if m.keep {
		_, err := m.Delete(ctx, m.id, true)
		return err
	}
	return m.remove(ctx, m.id)
}

// warm measures a create from the pool, and the time until a first command has ended.
func (b *bench) warm(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	turns, done, err := b.floors(d)
	if err != nil {
		return err
	}
	defer done()
	before, err := d.pool(ctx)
	if err != nil {
		return err
	}
	plain, used := &maker{daemon: d, pool: 1}, &maker{daemon: d, pool: 1}
	turns = append(turns, &turn{name: overHTTP, role: Ours, op: plain.make, after: plain.tidy},
		&turn{name: "create and first command", role: Ours, op: used.use, after: used.tidy})
	if err := b.inTurns(ctx, res, b.rounds(200), turns); err != nil {
		return err
	}
	res.ratio("berth / (ping + fdatasync)", res.measure(overHTTP), sum(res.measure(pingFloor), res.measure(syncFloor)),
		atMost(3))
	res.tail(overHTTP, atMost(5))
	return d.hits(ctx, res, before, made(plain, used))
}

// hits adds the share of n creates that came from the pool since before was read. A miss is slow but not a failure,
// so it is reported as a number.
func (d *daemon) hits(ctx context.Context, res *Result, before pool, n int) error {
	now, err := d.pool(ctx)
	if err != nil {
		return err
	}
	if !now.there || now.hits == before.hits {
		res.note("This daemon keeps no pool: each create started a container.")
		return nil
	}
	res.number("creates from the pool", 1-float64(now.misses-before.misses)/float64(n), atLeast(1).untracked())
	return nil
}

// made returns how many containers the makers of a row have created.
func made(makers ...*maker) (n int) {
	for _, m := range makers {
		n += m.count
	}
	return n
}

// custom measures a create with many options: environment, limits, and an existing workspace.
func (b *bench) custom(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	first := &maker{daemon: d, keep: true}
	if _, err := first.make(ctx); err != nil {
		return err
	}
	con, err := d.Container(ctx, first.id)
	if err != nil {
		return err
	}
	if err := first.tidy(ctx); err != nil {
		return err
	}
	// if this fails, the workspace stays listed
	defer func() { _ = d.DeleteWorkspace(context.WithoutCancel(ctx), con.WorkspaceID) }()
	before, err := d.pool(ctx)
	if err != nil {
		return err
	}
	plain := &maker{daemon: d, pool: 1}
	asking := &maker{daemon: d, pool: 1, keep: true, req: proto.CreateContainer{
		Env: map[string]string{"CUSTOM": "value", "OTHER": "more"}, WorkspaceID: con.WorkspaceID,
		Limits: proto.Limits{CPUs: 0.5, MemoryBytes: 256 << 20, PIDs: 100, OpenFiles: 1000, DiskBytes: 1 << 30},
	}}
	turns := []*turn{{name: "plain create", role: Ours, op: plain.make, after: plain.tidy}, {name: overHTTP, role: Ours,
		op: asking.make, after: asking.tidy}}
	const equally = "ctr run -d with equal options"
	if c := b.other(ctx, res, "ctr"); c != nil {
		workspace, err := os.MkdirTemp(b.tmp, "workspace-")
		if err != nil {
			return err
		}
		turns = append(turns, c.with("--env", "CUSTOM=value", "--env", "OTHER=more", "--cpus", "0.5", "--memory-limit",
			strconv.Itoa(256<<20), "--rlimit-nofile", "1000:1000",
			"--mount", "type=bind,src="+workspace+",dst=/workspace,options=rbind:rw").creating(equally, 4))
	}
	if err := b.inTurns(ctx, res, b.rounds(200), turns); err != nil {
		return err
	}
	res.against(overHTTP, atMost(1.2), "plain create")
	res.against(overHTTP, lower, equally)
	return d.hits(ctx, res, before, made(plain, asking))
}

// cold measures a create that must start everything.
func (b *bench) cold(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx, b.poolFlags(0, 0)...)
	if err != nil {
		return err
	}
	m := &maker{daemon: d}
	turns := []*turn{{name: overHTTP, role: Ours, op: m.make, after: m.tidy}}
	for _, o := range []other{{"ctr", "ctr run -d", 1}, {"docker", "docker run -d", 3}, {"crun", "crun run -d", 1}} {
		if c := b.other(ctx, res, o.name); c != nil {
			turns = append(turns, c.creating(o.command, o.every))
		}
	}
	bwrap, err := b.bubblewrap(ctx, res)
	if err != nil {
		return err
	}
	if bwrap != nil {
		turns = append(turns, bwrap)
	}
	if err := b.inTurns(ctx, res, b.rounds(60), turns); err != nil {
		return err
	}
	res.against(overHTTP, atMost(0.8), "ctr run -d")
	res.against(overHTTP, lower, "docker run -d", "crun run -d", "bwrap")
	res.note("bwrap runs `true` from start to end; the others start `sleep` and leave it.")
	return nil
}

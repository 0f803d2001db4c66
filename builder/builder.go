package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/moby/buildkit/client"
	"github.com/moby/buildkit/exporter/containerimage/exptypes"
	"github.com/moby/buildkit/frontend"
	dockerfile "github.com/moby/buildkit/frontend/dockerfile/builder"
	"github.com/moby/buildkit/frontend/gateway/forwarder"
	"github.com/moby/buildkit/identity"
	"github.com/moby/buildkit/session"
	"github.com/moby/buildkit/solver"
	"github.com/moby/buildkit/solver/bboltcachestorage"
	"github.com/moby/buildkit/solver/llbsolver"
	"github.com/moby/buildkit/solver/llbsolver/history"
	"github.com/moby/buildkit/util/db/boltutil"
	"github.com/moby/buildkit/util/leaseutil"
	"github.com/moby/buildkit/worker"
	"golang.org/x/sync/errgroup"

	buildconfig "github.com/moby/buildkit/cmd/buildkitd/config"

	"berth/build/wire"
)

// A builder runs one build over the cache of one owner.
type builder struct {
	job    wire.Job
	out    *events
	daemon *daemon
	files  *contextFS
	worker *stepWorker
	cache  solver.CacheManager
	solver *llbsolver.Solver
	sm     *session.Manager
	closes []func() error
}

// open opens the cache, the context, and the connections to the daemon.
func open(ctx context.Context, job wire.Job, out *events) (_ *builder, err error) {
	b := &builder{job: job, out: out, daemon: newDaemon(job.Daemon)}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.files, err = openContext(job.Context); err != nil {
		return nil, fmt.Errorf("reading the build context: %w", err)
	}
	b.closes = append(b.closes, b.files.Close)
	if b.worker, err = openWorker(ctx, job, b.daemon); err != nil {
		return nil, err
	}
	b.closes = append(b.closes, b.worker.Close)
	controller := &worker.Controller{}
	if err := controller.Add(b.worker); err != nil {
		return nil, err
	}
	store, err := bboltcachestorage.NewStore(filepath.Join(job.Root, "cache.db"))
	if err != nil {
		return nil, err
	}
	b.closes = append(b.closes, store.Close)
	b.cache = solver.NewCacheManager(ctx, "local", store, worker.NewCacheResultStorage(controller))
	if b.sm, err = session.NewManager(); err != nil {
		return nil, err
	}
	past, err := b.noHistory()
	if err != nil {
		return nil, err
	}
	b.solver, err = llbsolver.New(llbsolver.Opt{
		CacheManager: b.cache, WorkerController: controller, SessionManager: b.sm, HistoryQueue: past,
		Frontends: map[string]frontend.Frontend{
			"dockerfile.v0": forwarder.NewGatewayForwarder(controller.Infos(), dockerfile.Build),
		},
	})
	if err == nil {
		b.closes = append(b.closes, b.solver.Close)
	}
	return b, err
}

// noHistory returns a history of builds that keeps none. The solver needs one.
func (b *builder) noHistory() (*history.Queue, error) {
	db, err := boltutil.Open(filepath.Join(b.job.Scratch, "history.db"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	b.closes = append(b.closes, db.Close)
	none := int64(0)
	return history.NewQueue(history.QueueOpt{
		DB: db, LeaseManager: b.worker.LeaseManager(), ContentStore: b.worker.ContentStore(),
		CleanConfig: &buildconfig.HistoryConfig{MaxEntries: &none},
	})
}

func (b *builder) close() {
	for i := len(b.closes) - 1; i >= 0; i-- {
		_ = b.closes[i]() // the program ends
	}
}

// build solves the Dockerfile, reports progress, and hands the image to the daemon.
func (b *builder) build(ctx context.Context) error {
	ctx, done, err := leaseutil.WithLease(ctx, b.worker.LeaseManager(), leaseutil.MakeTemporary)
	if err != nil {
		return err
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }()
	s, err := b.openSession(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	image, err := b.worker.Exporter(client.ExporterImage, b.sm)
	if err != nil {
		return err
	}
	export, err := image.Resolve(ctx, 0, map[string]string{
		string(exptypes.OptKeyStore): "false", string(exptypes.OptKeyUnpack): "false",
		string(exptypes.OptKeyOCITypes): "true",
	})
	if err != nil {
		return err
	}
	id := identity.NewID()
	var group errgroup.Group
	status := make(chan *client.SolveStatus)
	group.Go(func() error { return b.solver.Status(context.WithoutCancel(ctx), id, status) })
	group.Go(func() error { b.report(status); return nil })
	var response *client.SolveResponse
	group.Go(func() (err error) {
		response, err = b.solver.Solve(ctx, id, s.ID(), frontend.SolveRequest{
			Frontend: "dockerfile.v0", FrontendOpt: b.options(), Evaluate: true,
		}, 0, llbsolver.ExporterRequest{Exporters: export1(export)}, nil, nil, false, nil, "", false)
		return err
	})
	if err := group.Wait(); err != nil {
		return b.daemon.explain(err)
	}
	built, err := resultOf(response.ExporterResponse)
	if err != nil {
		return err
	}
	return b.daemon.call(ctx, wire.PathDone, built, &struct{}{})
}

// Package gc runs sweeps on a schedule.
//
// In scope: when each task runs, that it never overlaps with itself, and the log and report of what it did. Out of
// scope: what a sweep does, which the package that is swept knows. The daemon calls it.
package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"
)

// A Task is one kind of sweep.
type Task struct {
	Name string // "sessions"; names the counts in log and metrics
	// Schedule is a cron line with optional seconds ("*/10 * * * * *"), or "@every 10s".
	Schedule string
	// Sweep does one sweep and counts what it did, by name. It also counts what it did before an error. A later
	// sweep does what is left. Its context ends with Close.
	Sweep func(context.Context) (map[string]int, error)
}

// Config is what Open needs.
type Config struct {
	Tasks []Task
	Log   *slog.Logger // nil: slog.Default
	// Report is called after each sweep, for metrics; nil: no report.
	Report func(task string, counts map[string]int, took time.Duration, err error)
}

// A Collector runs its tasks until Close. A task never overlaps with itself. The methods are safe for concurrent use.
type Collector struct {
	cfg    Config
	cron   *cron.Cron
	ctx    context.Context
	cancel context.CancelFunc
	slots  map[string]chan struct{} // by task; full while the task runs
}

// ErrClosed is the error of Sweep after Close.
var ErrClosed = errors.New("the sweeper is closed")

// parser takes five fields, six with seconds first, and @descriptors.
var parser = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Open starts the schedules. A schedule that cannot be parsed is an error that names its task.
func Open(cfg Config) (*Collector, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Collector{cfg: cfg, cron: cron.New(cron.WithParser(parser)), slots: map[string]chan struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, t := range cfg.Tasks {
		c.slots[t.Name] = make(chan struct{}, 1)
		if _, err := c.cron.AddFunc(t.Schedule, func() { c.tick(t) }); err != nil {
			c.cancel()
			return nil, fmt.Errorf("schedule of the %s sweep: %w", t.Name, err)
		}
	}
	c.cron.Start()
	return c, nil
}

// Close stops the schedules, cancels the sweeps that run and waits for them.
func (c *Collector) Close() error {
	c.cancel()
	<-c.cron.Stop().Done()
	for _, slot := range c.slots { // those that Sweep runs
		slot <- struct{}{}
		<-slot
	}
	return nil
}

// tick runs a task on its schedule. It skips the task if the last sweep still runs.
func (c *Collector) tick(t Task) {
	slot := c.slots[t.Name]
	select {
	case slot <- struct{}{}:
	default:
		c.cfg.Log.Warn("sweep skipped: the last one still runs", "task", t.Name)
		return
	}
	defer func() { <-slot }()
	_, _ = c.sweep(c.ctx, t)
}

// Sweep runs every task once, now, and returns their counts by name. It waits for a sweep that runs, until ctx ends. It
// returns the first error; the other tasks run all the same.
func (c *Collector) Sweep(ctx context.Context) (map[string]map[string]int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	all := map[string]map[string]int{}
	var first error
	for _, t := range c.cfg.Tasks {
		counts, err := c.sweepNow(ctx, t)
		all[t.Name] = counts
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return all, first
}

// sweepNow runs a task on request, after the sweep that runs.
func (c *Collector) sweepNow(ctx context.Context, t Task) (map[string]int, error) {
	slot := c.slots[t.Name]
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-ctx.Done():
	}
	switch {
	case c.ctx.Err() != nil:
		return nil, ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return c.sweep(ctx, t)
}

func (c *Collector) sweep(ctx context.Context, t Task) (map[string]int, error) {
	start := time.Now()
	counts, err := t.Sweep(ctx)
	took := time.Since(start)
	if c.cfg.Report != nil {
		c.cfg.Report(t.Name, counts, took, err)
	}
	args := []any{"task", t.Name, "took_seconds", took.Seconds()}
	sum := 0
	for name, n := range counts {
		args, sum = append(args, name, n), sum+n
	}
	switch {
	case err != nil && ctx.Err() == nil:
		c.cfg.Log.Error("sweep failed in part", append(args, "error", err)...)
	case sum > 0:
		c.cfg.Log.Info("swept", args...)
	}
	return counts, err
}

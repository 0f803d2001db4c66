// Package gc runs sweeps on a schedule. It knows when and reports what; what a sweep
// does is known to those who can be swept.
package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// A Task is one thing that can be swept.
type Task struct {
	Name string // "sessions"; names the counts in log and metrics
	// Schedule is a cron line with optional seconds ("*/10 * * * * *"), or "@every 10s".
	Schedule string
	// Sweep does one sweep and returns a struct of int fields that count what it did. It may
	// be called again while it has left something undone, and gets a context that ends with Close.
	Sweep func(context.Context) (any, error)
}

// Config is what Open needs.
type Config struct {
	Tasks []Task
	Log   *slog.Logger // nil: slog.Default
	// told of every sweep; for metrics; may be nil
	Report func(task string, counts map[string]int, took time.Duration, err error)
}

// A Collector runs its tasks until it is closed. One task never overlaps with itself. Its methods are safe
// for concurrent use.
type Collector struct {
	cfg    Config
	cron   *cron.Cron
	ctx    context.Context
	cancel context.CancelFunc
	turns  map[string]chan struct{} // by task; full for the length of a sweep
}

// ErrClosed is what Sweep returns after Close.
var ErrClosed = errors.New("the sweeper is closed")

// parser takes five fields or six with seconds first, and @descriptors.
var parser = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Open starts the schedules. A line that cannot be read is an error that names its task.
func Open(cfg Config) (*Collector, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Collector{cfg: cfg, cron: cron.New(cron.WithParser(parser)), turns: map[string]chan struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, t := range cfg.Tasks {
		c.turns[t.Name] = make(chan struct{}, 1)
		if _, err := c.cron.AddFunc(t.Schedule, func() { c.tick(t) }); err != nil {
			c.cancel()
			return nil, fmt.Errorf("schedule of the %s sweep: %w", t.Name, err)
		}
	}
	c.cron.Start()
	return c, nil
}

// Close stops the schedules and waits for sweeps under way, which are told to end.
func (c *Collector) Close() error {
	c.cancel()
	<-c.cron.Stop().Done()
	for _, turn := range c.turns { // those that Sweep was asked for
		turn <- struct{}{}
		<-turn
	}
	return nil
}

// tick is one turn of a schedule; if the last sweep still runs, it is left out.
func (c *Collector) tick(t Task) {
	turn := c.turns[t.Name]
	select {
	case turn <- struct{}{}:
	default:
		c.cfg.Log.Warn("sweep left out: the last one still runs", "task", t.Name)
		return
	}
	defer func() { <-turn }()
	_, _ = c.sweep(c.ctx, t)
}

// Sweep runs every task once, now, and returns their counts by name. It waits for its turn behind a sweep
// under way, as long as ctx lets it. The first error is returned; a task that fails does not keep the others
// from theirs.
func (c *Collector) Sweep(ctx context.Context) (map[string]map[string]int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	all := map[string]map[string]int{}
	var first error
	for _, t := range c.cfg.Tasks {
		counts, err := c.inTurn(ctx, t)
		all[t.Name] = counts
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return all, first
}

// inTurn is one sweep that was asked for.
func (c *Collector) inTurn(ctx context.Context, t Task) (map[string]int, error) {
	turn := c.turns[t.Name]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
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
	done, err := t.Sweep(ctx)
	counts, took := Counts(done), time.Since(start)
	if c.cfg.Report != nil {
		c.cfg.Report(t.Name, counts, took, err)
	}
	args := []any{"task", t.Name, "took", took}
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

// Counts are the integer fields of a struct by their names in lower_case.
func Counts(v any) map[string]int {
	counts := map[string]int{}
	rv := reflect.Indirect(reflect.ValueOf(v))
	if rv.Kind() != reflect.Struct {
		return counts
	}
	for i := range rv.NumField() {
		if f := rv.Field(i); f.CanInt() {
			counts[snake(rv.Type().Field(i).Name)] = int(f.Int())
		}
	}
	return counts
}

func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

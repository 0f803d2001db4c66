package gc

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type counts struct{ stopped, halfMade int }

func (c counts) byName() map[string]int {
	return map[string]int{"stopped": c.stopped, "half_made": c.halfMade}
}

// held is a task whose sweep tells when it begins and ends when it is let go, or told to.
type held struct {
	begun, let chan struct{}
	running    atomic.Int32
	overlaps   atomic.Int32
	ended      atomic.Int32 // by its context
}

func newHeld() *held { return &held{begun: make(chan struct{}, 100), let: make(chan struct{})} }

func (h *held) sweep(ctx context.Context) (map[string]int, error) {
	if h.running.Add(1) > 1 {
		h.overlaps.Add(1)
	}
	defer h.running.Add(-1)
	h.begun <- struct{}{}
	select {
	case <-h.let:
		return counts{stopped: 2}.byName(), nil
	case <-ctx.Done():
		h.ended.Add(1)
		return counts{}.byName(), ctx.Err()
	}
}

func open(t *testing.T, cfg Config) *Collector {
	t.Helper()
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestSweepCountsAndReports(t *testing.T) {
	bad := errors.New("bad")
	var mu sync.Mutex
	reported := map[string]error{}
	c := open(t, Config{
		Report: func(task string, _ map[string]int, _ time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			reported[task] = err
		},
		Tasks: []Task{
			{Name: "first", Schedule: "0 0 1 1 *", Sweep: func(context.Context) (map[string]int, error) {
				return counts{stopped: 1}.byName(), bad
			}},
			{Name: "second", Schedule: "@every 1h", Sweep: func(context.Context) (map[string]int, error) {
				return counts{halfMade: 3}.byName(), nil
			}},
		},
	})
	got, err := c.Sweep(context.Background())
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), "first") {
		t.Errorf("%v", err)
	}
	want := map[string]map[string]int{"first": {"stopped": 1, "half_made": 0}, "second": {"stopped": 0, "half_made": 3}}
	if !reflect.DeepEqual(got, want) || len(reported) != 2 || !errors.Is(reported["first"], bad) {
		t.Errorf("%v, reported %v", got, reported)
	}
}

func TestBadScheduleNamesItsTask(t *testing.T) {
	for _, line := range []string{"", "every day", "* * *", "61 * * * *", "@every x"} {
		if _, err := Open(Config{Tasks: []Task{{Name: "things", Schedule: line}}}); err == nil ||
			!strings.Contains(err.Error(), "things") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestScheduledSweepNeverOverlaps(t *testing.T) {
	h := newHeld()
	c := open(t, Config{Tasks: []Task{{Name: "h", Schedule: "@every 1s", Sweep: h.sweep}}})
	<-h.begun // the schedule's own
	c.tick(c.cfg.Tasks[0])
	if h.overlaps.Load() != 0 || len(h.begun) != 0 {
		t.Fatal("a sweep began under another")
	}
	asked := make(chan error, 1)
	go func() { _, err := c.Sweep(context.Background()); asked <- err }()
	close(h.let)
	if err := <-asked; err != nil || h.overlaps.Load() != 0 {
		t.Errorf("%v, %d overlaps", err, h.overlaps.Load())
	}
}

func TestSweepWaitsNoLongerThanItsCaller(t *testing.T) {
	h := newHeld()
	c := open(t, Config{Tasks: []Task{{Name: "h", Schedule: "0 0 1 1 *", Sweep: h.sweep}}})
	go c.tick(c.cfg.Tasks[0])
	<-h.begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Sweep(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(h.let)
}

func TestCloseEndsAndAwaitsSweeps(t *testing.T) {
	h := newHeld()
	c := open(t, Config{Tasks: []Task{{Name: "h", Schedule: "0 0 1 1 *", Sweep: h.sweep}}})
	asked := make(chan error, 1)
	go func() { _, err := c.Sweep(context.Background()); asked <- err }()
	<-h.begun
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if h.running.Load() != 0 || h.ended.Load() != 1 {
		t.Error("closed over a sweep that runs")
	}
	if err := <-asked; err == nil {
		t.Error("a sweep that was cut off says it is done")
	}
	if _, err := c.Sweep(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("sweeping after Close: %v", err)
	}
}

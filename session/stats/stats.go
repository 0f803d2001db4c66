// Package stats knows what containers use: now, and over the last hour.
//
// In scope: when a running container is measured, how long samples are kept, and the wire form. Out of scope: reading
// the kernel's counters (runtime/meter) and serving them (api/native). Measuring reads files of the kernel from outside
// of the container, so it neither wakes a container nor keeps one from being paused or stopped.
package stats

import (
	"context"
	"sync"
	"time"

	"berth/proto"
	"berth/session/limits"
)

// A Meter reads what a container uses. The runtime is one.
type Meter interface {
	Usage(id, workspace string) limits.Usage
}

// Times of samples. A container in which nothing happens is measured ever less often, since each sample costs some
// twenty reads.
const (
	busyEvery = 5 * time.Second
	idleEvery = time.Minute
	keep      = time.Hour
)

// maxSamples bounds the samples of all containers, some 64 MiB. keepEach bounds those of one.
const (
	maxSamples = 700_000
	keepEach   = int(keep / busyEvery)
)

// busyShare is the share of a core above which a container counts as busy.
const busyShare = 0.005

// A Store measures the containers of a daemon and keeps samples of an hour. It is safe for concurrent use.
type Store struct {
	cfg    Config
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu sync.Mutex
	of map[string]*history // by container
}

// A history has the samples of one container, oldest first.
type history struct {
	samples []sample
	due     time.Time     // when it is measured next
	every   time.Duration // the present interval
}

// A sample is a Stats in short form.
type sample struct {
	at         int64 // Unix time in ns
	generation int64
	usage      limits.Usage
	net        proto.StatsNetwork
	percent    float32 // -1: unknown
	execs      int32
	state      proto.State
}

// A Config is what Open needs. List and Limits must be set.
type Config struct {
	List    func() []proto.Container // all containers of the daemon
	Meter   Meter                    // nil: everything is unknown
	Traffic *Traffic                 // nil: no container has a network
	Limits  proto.Limits             // of containers without their own
}

// Open starts to measure.
func Open(cfg Config) *Store {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{cfg: cfg, cancel: cancel, of: map[string]*history{}}
	s.done.Go(func() {
		tick := time.NewTicker(busyEvery)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				s.measureAll(now)
			case <-ctx.Done():
				return
			}
		}
	})
	return s
}

// Close stops measuring.
func (s *Store) Close() error {
	s.cancel()
	s.done.Wait()
	return nil
}

// measureAll measures the containers that are due, and forgets what is over.
func (s *Store) measureAll(now time.Time) {
	there := map[string]bool{}
	for _, one := range s.cfg.List() {
		there[one.ID] = true
		if Measured(one) {
			s.measureIfDue(one, now)
		}
	}
	if s.cfg.Traffic != nil {
		s.cfg.Traffic.keep(there)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.of {
		if h.drop(now.Add(-keep)); !there[id] || len(h.samples) == 0 {
			delete(s.of, id)
		}
	}
	// With very many busy containers each keeps fewer samples, and so a shorter time.
	if n := len(s.of); n > 0 && n*keepEach > maxSamples {
		for _, h := range s.of {
			h.samples = h.samples[max(0, len(h.samples)-max(2, maxSamples/n)):]
		}
	}
}

// Measured reports whether there is something to measure of a container beside its disk space.
func Measured(one proto.Container) bool {
	return one.State == proto.StateRunning || one.State == proto.StatePaused
}

// drop forgets samples from before a time.
func (h *history) drop(before time.Time) {
	n := 0
	for n < len(h.samples) && h.samples[n].at < before.UnixNano() {
		n++
	}
	if n == len(h.samples) {
		h.samples = nil // and their memory
		return
	}
	h.samples = h.samples[n:]
}

// measureIfDue measures a container if it is busy or was not measured for long.
func (s *Store) measureIfDue(one proto.Container, now time.Time) {
	s.mu.Lock()
	h := s.of[one.ID]
	if h == nil {
		h = &history{}
		s.of[one.ID] = h
	}
	due := !now.Before(h.due)
	s.mu.Unlock()
	if !due && one.RunningExecs == 0 {
		return
	}
	next := s.measure(one, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	h.samples = append(h.samples, next)
	h.samples = h.samples[max(0, len(h.samples)-keepEach):]
	h.every = min(2*h.every, idleEvery)
	if next.execs > 0 || next.percent > 100*busyShare || h.every == 0 {
		h.every = busyEvery
	}
	h.due = now.Add(h.every - busyEvery/2) // a tick that is a little early counts
}

// measure measures a container now, and compares it with its last sample.
func (s *Store) measure(info proto.Container, now time.Time) sample {
	next := sample{at: now.UnixNano(), generation: info.Generation, usage: limits.UnknownUsage, percent: -1,
		execs: int32(info.RunningExecs), state: info.State}
	if s.cfg.Meter != nil {
		next.usage = s.cfg.Meter.Usage(info.ID, info.WorkspaceID)
	}
	if s.cfg.Traffic != nil {
		next.net = s.cfg.Traffic.of(info.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.of[info.ID]; h != nil {
		for i := len(h.samples) - 1; i >= 0; i-- {
			// An average over less than a second says little, and the kernel counts in ticks.
			if last := h.samples[i]; next.at-last.at >= int64(time.Second) {
				next.compare(last)
				break
			}
		}
	}
	return next
}

// compare computes what an earlier sample is needed for.
func (n *sample) compare(last sample) {
	spent := n.usage.CPUSeconds - last.usage.CPUSeconds
	if n.generation == last.generation && last.usage.CPUSeconds >= 0 && n.usage.CPUSeconds >= 0 && spent >= 0 {
		n.percent = float32(100 * spent / time.Duration(n.at-last.at).Seconds())
	}
}

// Now measures a container.
func (s *Store) Now(one proto.Container) proto.Stats { return s.stats(one, s.measure(one, time.Now())) }

// Since measures a container like Now, and compares it with an earlier measurement of the caller instead of the last
// sample.
func (s *Store) Since(one proto.Container, before proto.Stats) proto.Stats {
	now := s.measure(one, time.Now())
	if before.CPU.Seconds != nil {
		now.percent = -1
		now.compare(sample{at: before.Timestamp.UnixNano(), generation: before.Generation,
			usage: limits.Usage{CPUSeconds: *before.CPU.Seconds}})
	}
	return s.stats(one, now)
}

// History returns the samples of a container between two times, oldest first. A zero time is no bound.
func (s *Store) History(one proto.Container, since, until time.Time) []proto.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []proto.Stats{}
	if h := s.of[one.ID]; h != nil {
		for _, x := range h.samples {
			at := time.Unix(0, x.at)
			if !at.Before(since) && (until.IsZero() || at.Before(until)) {
				list = append(list, s.stats(one, x))
			}
		}
	}
	return list
}

// stats returns the wire form. info has what does not change, and the limits as of now.
func (s *Store) stats(info proto.Container, n sample) proto.Stats {
	l := info.Limits.Or(s.cfg.Limits)
	out := proto.Stats{
		ContainerID: info.ID, Name: info.Name, Timestamp: proto.At(time.Unix(0, n.at)), State: n.state,
		RuntimeClass: info.RuntimeClass, Generation: n.generation,
		CPU: proto.StatsCPU{Seconds: known(n.usage.CPUSeconds), LimitCPUs: l.CPUs,
			ThrottledSeconds: known(n.usage.ThrottledSeconds), Percent: known(float64(n.percent))},
		Memory: proto.StatsMemory{UsedBytes: known(n.usage.MemoryBytes), CacheBytes: known(n.usage.CacheBytes),
			LimitBytes: l.MemoryBytes},
		Disk: proto.StatsDisk{WorkspaceBytes: used(n.usage.Workspace), LayerBytes: used(n.usage.Layer),
			LimitBytes: l.DiskBytes},
		Network: n.net, ProcessesLimit: l.PIDs, RunningExecs: int(n.execs),
	}
	if info.RuntimeClass != proto.ClassGVisor {
		out.Processes = known(n.usage.Tasks)
	}
	return out
}

// known returns a number, or nil if it is unknown.
func known[T int64 | float64](n T) *T {
	if n < 0 {
		return nil
	}
	return &n
}

// used returns the used bytes of a space, or nil if they are unknown.
func used(s limits.Space) *int64 {
	if s == (limits.Space{}) {
		return nil
	}
	return known(s.Used)
}

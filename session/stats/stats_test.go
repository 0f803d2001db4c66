package stats

import (
	"testing"
	"time"

	"berth/proto"
	"berth/session/limits"
)

// kernel is a meter whose counters a test sets.
type kernel struct {
	of    map[string]limits.Usage
	reads int
}

func (k *kernel) Usage(id, _ string) limits.Usage {
	k.reads++
	if u, ok := k.of[id]; ok {
		return u
	}
	return limits.UnknownUsage
}

// store returns a store that measures only when the test says so.
func store(t *testing.T, k *kernel, list *[]proto.Container) *Store {
	return &Store{cfg: Config{List: func() []proto.Container { return *list }, Meter: k, Traffic: NewTraffic(),
		Limits: proto.Limits{CPUs: 2, PIDs: 9}}, of: map[string]*history{}}
}

// A busy container is measured every 5 seconds and keeps an hour; an idle one costs a measurement a minute; one that is
// stopped costs none, keeps its samples for an hour, and a removed one keeps none.
func TestSamples(t *testing.T) {
	busy := proto.Container{ID: "busy", State: proto.StateRunning, Generation: 1, RunningExecs: 1}
	idle := proto.Container{ID: "idle", State: proto.StatePaused, Generation: 1}
	list := []proto.Container{busy, idle, {ID: "gone", State: proto.StateStopped}}
	k := &kernel{of: map[string]limits.Usage{}}
	s := store(t, k, &list)
	now, cpu := time.Now(), 0.0
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(busyEvery) {
			cpu += busyEvery.Seconds() / 2
			k.of["busy"] = limits.Usage{CPUSeconds: cpu}
			k.of["idle"] = limits.Usage{CPUSeconds: 1, MemoryBytes: 7}
			s.measureAll(now)
		}
	}
	pass(2 * time.Hour)
	samples := s.History(busy, time.Time{}, time.Time{})
	if n := len(samples); n != keepEach {
		t.Errorf("%d samples of the busy one", n)
	}
	if p := samples[9].CPU.Percent; p == nil || *p < 49 || *p > 51 {
		t.Errorf("%+v", samples[9].CPU)
	}
	samples = s.History(idle, time.Time{}, time.Time{})
	if n := len(samples); n < 50 || n > 62 || *samples[3].Memory.UsedBytes != 7 || samples[3].ProcessesLimit != 9 {
		t.Errorf("%d samples of the idle one", n)
	}
	if n := len(s.History(busy, now.Add(-time.Minute), now.Add(-30*time.Second))); n != 6 {
		t.Errorf("%d samples between the times", n)
	}
	list[0].State, list[0].RunningExecs, list[1].State = proto.StateStopped, 0, proto.StateExpired
	before := k.reads
	pass(30 * time.Minute)
	if n := len(s.History(busy, time.Time{}, time.Time{})); n < keepEach/2-1 || n > keepEach/2+1 || k.reads != before {
		t.Errorf("%d samples of the stopped one, %d measurements", n, k.reads-before)
	}
	list = list[1:]
	pass(busyEvery)
	if len(s.of) != 1 || s.of["idle"] == nil {
		t.Errorf("%v", s.of)
	}
}

// A container that stays stopped for an hour loses all of its samples, and is measured anew when it runs again.
func TestAllSamplesAreOld(t *testing.T) {
	list := []proto.Container{{ID: "a", State: proto.StateRunning, Generation: 1}}
	s := store(t, &kernel{of: map[string]limits.Usage{}}, &list)
	now := time.Now()
	for range 3 {
		s.measureAll(now)
		now = now.Add(idleEvery)
	}
	list[0].State = proto.StateStopped
	if now = now.Add(2 * keep); len(s.History(list[0], time.Time{}, time.Time{})) != 3 {
		t.Errorf("it has %d samples", len(s.History(list[0], time.Time{}, time.Time{})))
	}
	s.measureAll(now)
	if len(s.of) != 0 {
		t.Errorf("%d histories are left", len(s.of))
	}
	list[0].State = proto.StateRunning
	s.measureAll(now)
	if n := len(s.History(list[0], time.Time{}, time.Time{})); n != 1 {
		t.Errorf("it has %d samples after it ran again", n)
	}
}

// A percentage belongs to one generation, and an unknown counter is null.
func TestUnknownIsNull(t *testing.T) {
	one := proto.Container{ID: "a", State: proto.StateRunning, Generation: 1, RuntimeClass: proto.ClassGVisor}
	k := &kernel{of: map[string]limits.Usage{"a": {CPUSeconds: 5, Tasks: 30, MemoryBytes: -1}}}
	s := store(t, k, &[]proto.Container{one})
	first := s.Now(one)
	if first.CPU.Percent != nil || *first.CPU.Seconds != 5 || first.Processes != nil || first.Memory.UsedBytes != nil ||
		first.Disk.LayerBytes != nil || first.CPU.LimitCPUs != 2 {
		t.Errorf("%+v", first)
	}
	first.Timestamp = proto.At(first.Timestamp.Add(-time.Second))
	k.of["a"] = limits.Usage{CPUSeconds: 6}
	if now := s.Since(one, first); now.CPU.Percent == nil || *now.CPU.Percent < 50 || *now.CPU.Percent > 101 {
		t.Errorf("%+v", now.CPU)
	}
	one.Generation = 2
	if now := s.Since(one, first); now.CPU.Percent != nil {
		t.Errorf("another generation: %v", *now.CPU.Percent)
	}
}

// Very many busy containers keep fewer samples each.
func TestSamplesAreBounded(t *testing.T) {
	const n = maxSamples/keepEach + 200
	s := store(t, &kernel{}, &[]proto.Container{})
	var list []proto.Container
	for i := range n {
		id := proto.ID("container_", [16]byte{byte(i), byte(i >> 8)})
		list = append(list, proto.Container{ID: id, State: proto.StateStopped})
		s.of[id] = &history{samples: make([]sample, keepEach)}
		for j := range s.of[id].samples {
			s.of[id].samples[j].at = time.Now().UnixNano()
		}
	}
	s.cfg.List = func() []proto.Container { return list }
	s.measureAll(time.Now())
	total := 0
	for _, h := range s.of {
		total += len(h.samples)
	}
	if total > maxSamples || len(s.of) != n {
		t.Errorf("%d samples of %d containers", total, len(s.of))
	}
}

// Requests that are over count, and forgotten containers do not.
func TestTraffic(t *testing.T) {
	list := []proto.Container{{ID: "a"}}
	s := store(t, &kernel{}, &list)
	for _, id := range []string{"a", "a", "b"} {
		s.cfg.Traffic.Observe(proto.AuditEntry{ContainerID: id, Egress: &proto.AuditEgress{Sent: 2, Received: 3}})
	}
	if n := s.Now(list[0]).Network; n.SentBytes != 4 || n.ReceivedBytes != 6 {
		t.Errorf("%+v", n)
	}
	s.measureAll(time.Now())
	if len(s.cfg.Traffic.byContainer) != 1 {
		t.Error("a removed container is still counted")
	}
}

package e2b

import (
	"context"
	"errors"
	"sync"
	"time"

	"berth/events"
	"berth/proto"
)

// errGone ends requests to a sandbox that has ended or was paused while they ran.
var errGone = errors.New("the sandbox has ended or was paused")

// changes are the events after which a sandbox may not go on with what it was doing.
var changes = []string{string(proto.FeedContainerPaused), string(proto.FeedContainerStopped),
	string(proto.FeedContainerExpired), string(proto.FeedContainerDeleted), string(proto.FeedContainerReset),
	string(proto.FeedContainerRestored), string(proto.FeedContainerChanged)}

// recheck is how soon the end of a lease is looked at again at the earliest, if it has not come yet.
const recheck = time.Second

// leaveTime is how long requests that break off are waited for. One whose client reads nothing does not notice before
// its next write fails, by the server's own limit.
const leaveTime = 3 * time.Second

type streamsConfig struct {
	feed   *events.Feed           // nil: only the ends of leases and breakOff end requests
	forget func(id string)        // ends what goes on between the requests to a container
	gone   func(id string) bool   // the container has ended or is paused
	ends   func(string) time.Time // when the lease of a container ends
}

// streams are the requests to sandboxes that run now. Those of a sandbox break off when it goes, so that their clients
// notice, and what goes on between requests ends.
type streams struct {
	streamsConfig
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once

	mu      sync.Mutex
	all     map[string]*group // by container
	leaving map[string]int    // containers that requests end or pause now, and how many do
}

// A group has the requests to one container.
type group struct {
	requests map[*stream]bool
	alarm    *time.Timer // at the end of the lease
}

// A stream is one request.
type stream struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has left
}

func newStreams(cfg streamsConfig) *streams {
	s := &streams{streamsConfig: cfg, all: map[string]*group{}, leaving: map[string]int{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends the wait for events.
func (s *streams) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

// join adds a request to a container. Its context ends with errGone when the container goes.
func (s *streams) join(ctx context.Context, id string) (context.Context, func()) {
	s.once.Do(s.watch)
	ctx, cancel := context.WithCancelCause(ctx)
	one := &stream{cancel, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.all[id]
	if g == nil {
		g = &group{requests: map[*stream]bool{}}
		g.alarm = time.AfterFunc(time.Until(s.ends(id)), func() { s.leaseOver(id) })
		s.all[id] = g
	}
	g.requests[one] = true
	return ctx, func() {
		cancel(nil)
		close(one.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(g.requests, one); len(g.requests) == 0 {
			g.alarm.Stop()
			delete(s.all, id)
		}
	}
}

// leaseOver is called when the lease of a container may have ended.
func (s *streams) leaseOver(id string) {
	if s.gone(id) {
		s.breakOff(s.ctx, id)
		return
	}
	s.setAlarm(id, max(time.Until(s.ends(id)), recheck))
}

// setAlarm has the lease of a container looked at after a time.
func (s *streams) setAlarm(id string, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.all[id]; g != nil {
		g.alarm.Reset(after)
	}
}

// breakOff ends the requests to a container, and waits until they have left, for at most leaveTime.
func (s *streams) breakOff(ctx context.Context, id string) {
	s.forget(id)
	s.mu.Lock()
	var list []*stream
	if g := s.all[id]; g != nil {
		for one := range g.requests {
			one.cancel(errGone)
			list = append(list, one)
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	for _, one := range list {
		select {
		case <-one.done:
		case <-ctx.Done():
			return
		}
	}
}

// leave breaks off the requests to a container that is about to end or to be paused. Until done is called, it counts as
// gone: clients whose requests broke off ask at once whether it is.
func (s *streams) leave(ctx context.Context, id string) (done func()) {
	s.mu.Lock()
	s.leaving[id]++
	s.mu.Unlock()
	s.breakOff(ctx, id)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.leaving[id]--; s.leaving[id] == 0 {
			delete(s.leaving, id)
		}
	}
}

// isLeaving reports whether a container ends or is paused now.
func (s *streams) isLeaving(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving[id] > 0
}

// watch breaks off the requests to containers that go, also if another edge caused that. The first request begins it.
func (s *streams) watch() {
	if s.feed == nil {
		return
	}
	f, err := s.feed.Follow(s.ctx, events.Filter{Types: changes}, events.Start{})
	if err != nil { // the log cannot be read; then streams end with their processes and their leases
		return
	}
	s.wg.Go(func() {
		defer f.Close()
		_ = f.Each(s.ctx, func(ev proto.FeedEvent) error {
			switch {
			case ev.ContainerID == "":
			case ev.Type == proto.FeedContainerChanged && !s.gone(ev.ContainerID):
				s.setAlarm(ev.ContainerID, time.Until(s.ends(ev.ContainerID)))
			case ev.Type == proto.FeedContainerStopped && !s.gone(ev.ContainerID): // idle, and used again
			default:
				s.breakOff(s.ctx, ev.ContainerID)
			}
			return nil
		})
	})
}

package warmpool

import (
	"context"
	"math"
	"runtime"
	"slices"
	"time"

	"berth/proto"
)

const (
	// handshakeTimeout is the time that a guest has for a handshake. On an overloaded machine guests have been slow.
	// A guest that takes longer than this hangs.
	handshakeTimeout = 3 * time.Second
	// probeEvery is how often the guest of each pooled sandbox must answer a handshake.
	probeEvery = 10 * time.Second
	// tickEvery is how often the pool checks its sandboxes.
	tickEvery = time.Second
	// staleAfter is how long a kind keeps pooled sandboxes after its last use.
	staleAfter = 10 * time.Minute
	// Before the pool makes a sandbox, it waits until no session has come, and none has been given a sandbox, for the
	// time quiet. So a burst has the machine to itself. patience is the longest such wait.
	quiet, patience = 20 * time.Millisecond, 500 * time.Millisecond
	// backOff is the wait after the first failure. It doubles with each further failure, up to longBackOff.
	backOff, longBackOff = time.Second, time.Minute
	// closeTimeout limits the removal of the pool's sandboxes at the daemon's end.
	closeTimeout = 30 * time.Second
)

// A demand counts how many sessions came within the last seconds. Its peak falls to a half in about 25 seconds.
type demand struct {
	recent [5]int // by second, the present one first
	peak   float64
}

func (d *demand) note() {
	d.recent[0]++
	d.peak = max(d.peak, float64(d.sum()))
}

func (d *demand) sum() (n int) {
	for _, k := range d.recent {
		n += k
	}
	return n
}

// tick ends a second.
func (d *demand) tick() {
	const fade = 0.973
	d.peak = max(float64(d.sum()), d.peak*fade)
	copy(d.recent[1:], d.recent[:])
	d.recent[0] = 0
}

// target returns how many pooled sandboxes are wanted.
func (d *demand) target() int { return int(math.Round(d.peak)) }

// Start starts the goroutines that fill and check the pool, until Close. Call it once sessions are served, because
// waiting sessions come first. A second call changes nothing.
func (p *Pool) Start() {
	if !p.on() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	if p.stop != nil {
		p.mu.Unlock()
		cancel()
		return
	}
	p.stop = cancel
	p.mu.Unlock()
	nudge(p.renamed)
	p.wg.Go(func() {
		p.adopt(ctx)
		// One CPU in four makes sandboxes, so requests have the others.
		for range max(1, runtime.NumCPU()/4) {
			p.wg.Go(func() { p.fill(ctx) })
		}
		p.keep(ctx)
	})
}

// Stop stops the pool's goroutines. The sandboxes in the pool stay.
func (p *Pool) Stop() {
	p.mu.Lock()
	stop := p.stop
	p.mu.Unlock()
	if stop != nil {
		stop()
		p.wg.Wait()
	}
}

// Close stops the pool's goroutines and removes all pooled sandboxes, as far as the time of a shutdown allows. The
// next daemon finds the rest.
func (p *Pool) Close() {
	p.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	p.mu.Lock()
	for kind, of := range p.kinds {
		for _, s := range of.ready {
			p.discardLocked(s)
		}
		delete(p.kinds, kind)
	}
	p.mu.Unlock()
	p.RemovePending(ctx)
}

// keep checks the pool every second, and when images change.
func (p *Pool) keep(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.renamed:
			p.learnImages(ctx)
		case <-tick.C:
			p.age()
			p.probe(ctx)
			p.RemovePending(ctx)
		}
		nudge(p.kick)
	}
}

// learnImages reads which images have names. Images without a name get no more pooled sandboxes.
func (p *Pool) learnImages(ctx context.Context) {
	named, pinned, err := p.maker.Images(ctx, p.cfg.Image)
	if err != nil {
		p.cfg.Log.Warn("asking for the images that are to be kept warm; the next change of images tries again", "err",
			err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned = (Kind{Image: pinned, Class: p.cfg.Class}); pinned != "" {
		p.kindPool(p.pinned)
	}
	for kind, of := range p.kinds {
		if !named[kind.Image] {
			of.used, of.demand = time.Time{}, demand{}
		}
	}
	p.trimLocked()
}

// ForgetDemand makes the pool forget earlier requests, as some minutes without any do. Tests use it.
func (p *Pool) ForgetDemand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.kinds {
		of.demand = demand{}
	}
}

// age lets demand fade and drops surplus sandboxes.
func (p *Pool) age() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.kinds {
		of.demand.tick()
	}
	p.trimLocked()
}

// trimLocked drops surplus sandboxes: one of each kind per call, and all of kinds that are not in use.
func (p *Pool) trimLocked() {
	plan := p.planLocked()
	for kind, of := range p.kinds {
		want := plan[kind]
		for n := len(of.ready) + of.making - want; n > 0 && len(of.ready) > 0; n-- {
			if p.dropOneLocked(of); want > 0 {
				break
			}
		}
		if want == 0 && len(of.ready)+of.making == 0 && kind != p.pinned {
			delete(p.kinds, kind)
		}
	}
}

// planLocked returns how many sandboxes each kind gets. The pinned one comes first, then the others by latest use.
func (p *Pool) planLocked() map[Kind]int {
	order := make([]Kind, 0, len(p.kinds))
	for kind := range p.kinds {
		order = append(order, kind)
	}
	slices.SortFunc(order, func(a, b Kind) int {
		switch p.pinned {
		case a:
			return -1
		case b:
			return 1
		}
		return p.kinds[b].used.Compare(p.kinds[a].used)
	})
	plan, room := make(map[Kind]int), p.cfg.Max
	for _, kind := range order { // first the minimum of each, then the further demand
		if of := p.kinds[kind]; kind == p.pinned || time.Since(of.used) < staleAfter {
			plan[kind] = min(p.cfg.Min, room)
			room -= plan[kind]
		}
	}
	for _, kind := range order {
		more := min(max(0, p.kinds[kind].demand.target()-plan[kind]), room)
		plan[kind] += more
		room -= more
	}
	return plan
}

// probe checks that the guests of pooled sandboxes answer, each every probeEvery. The sandboxes stay in the pool
// meanwhile, because a session that takes one makes its own check.
func (p *Pool) probe(ctx context.Context) {
	p.mu.Lock()
	var due []*Sandbox
	now := time.Now()
	for _, of := range p.kinds {
		for _, s := range of.ready {
			if !s.Alive() || now.Sub(s.seen) > probeEvery {
				due = append(due, s)
			}
		}
	}
	p.mu.Unlock()
	for _, s := range due {
		answers := s.Alive() && s.Shake(ctx) == nil
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		s.seen = time.Now()
		if of := p.kinds[s.Kind]; of != nil && !answers {
			if i := slices.Index(of.ready, s); i >= 0 { // otherwise a session has taken it
				of.ready = slices.Delete(of.ready, i, i+1)
				p.discardLocked(s)
			}
		}
		p.mu.Unlock()
	}
}

// add adds a sandbox whose guest has just answered to the pool of its kind.
func (p *Pool) add(s *Sandbox) {
	s.seen = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.kindPool(s.Kind)
	of.ready = append(of.ready, s)
}

// removeLater leaves the removal of a sandbox to RemovePending.
func (p *Pool) removeLater(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pendingRemoval = append(p.pendingRemoval, name)
}

// fill makes pooled sandboxes, one after the other, until ctx ends.
func (p *Pool) fill(ctx context.Context) {
	for {
		kind, limits := p.next()
		if kind.Image == "" {
			select {
			case <-p.kick:
				continue
			case <-ctx.Done():
				return
			}
		}
		p.awaitQuiet(ctx)
		began := time.Now()
		s, err := p.make(ctx, kind, limits)
		// A start that takes longer than the fastest one competed with other work and slowed that work by the same
		// time. The pause gives the time back.
		if !pause(ctx, min(p.made(ctx, kind, s, err, time.Since(began)), tickEvery)) {
			return
		}
	}
}

// next returns the kind and the limits of the sandbox to make next, and counts it as being made. It returns the zero
// Kind if none is needed now.
func (p *Pool) next() (kind Kind, limits proto.Limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most, now := 0, time.Now()
	for candidate, want := range p.planLocked() {
		of := p.kinds[candidate]
		if short := want - len(of.ready) - of.making; short > most && now.After(of.notUntil) {
			kind, most = candidate, short
		}
	}
	if kind.Image != "" {
		p.kinds[kind].making++
		limits = p.kinds[kind].limits
	}
	return kind, limits
}

// made records the result of an attempt, and returns by how much it took longer than the fastest one.
func (p *Pool) made(ctx context.Context, kind Kind, s *Sandbox, err error, took time.Duration) (longer time.Duration) {
	if err == nil {
		p.add(s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.kinds[kind]
	if of.best == 0 || took < of.best {
		of.best = took
	}
	if of.making--; err == nil {
		of.failures = 0
		return took - of.best
	}
	if of.failures++; of.failures == 1 && ctx.Err() == nil {
		p.cfg.Log.Warn("keeping containers warm does not work; they are started when they are asked for, and this is "+
			"tried again less and less often", "image", kind.Image, "class", kind.Class, "err", err)
	}
	of.notUntil = time.Now().Add(min(longBackOff, backOff<<min(of.failures-1, 10)))
	return took - of.best
}

// awaitQuiet waits for the end of a burst.
func (p *Pool) awaitQuiet(ctx context.Context) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		p.mu.Lock()
		left := quiet - time.Since(p.asked)
		if p.taken > 0 {
			left = quiet
		}
		p.mu.Unlock()
		if left <= 0 || !pause(ctx, left) {
			return
		}
	}
}

// pause waits for d, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// make makes a pooled sandbox. After a failure, the sandbox is removed at once or by RemovePending.
func (p *Pool) make(ctx context.Context, kind Kind, limits proto.Limits) (*Sandbox, error) {
	name := proto.NewID(proto.ContainerPrefix)
	p.mu.Lock()
	p.own[name] = true
	p.mu.Unlock()
	if err := p.maker.Make(ctx, name, kind, limits); err != nil {
		p.mu.Lock()
		delete(p.own, name) // the runtime must list the sandbox if parts are left
		p.mu.Unlock()
		return nil, err
	}
	s, err := p.open(ctx, name, kind, limits)
	if err != nil {
		p.removeLater(name)
	}
	return s, err
}

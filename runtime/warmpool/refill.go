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
	// staleAfter is how long an image keeps pooled sandboxes after its last use.
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
// waiting sessions come first.
func (p *Pool) Start() {
	if !p.on() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
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
	for image, of := range p.images {
		for _, s := range of.ready {
			p.discardLocked(s)
		}
		delete(p.images, image)
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
	if p.pinned = pinned; pinned != "" {
		p.imagePool(pinned)
	}
	for image, of := range p.images {
		if !named[image] {
			of.used, of.demand = time.Time{}, demand{}
		}
	}
	p.trimLocked()
}

// ForgetDemand makes the pool forget earlier requests, as some minutes without any do. Tests use it.
func (p *Pool) ForgetDemand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.images {
		of.demand = demand{}
	}
}

// age lets demand fade and drops surplus sandboxes.
func (p *Pool) age() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.images {
		of.demand.tick()
	}
	p.trimLocked()
}

// trimLocked drops surplus sandboxes, oldest first: one of each image per call, and all of images that are not in
// use.
func (p *Pool) trimLocked() {
	plan := p.planLocked()
	for image, of := range p.images {
		want := plan[image]
		for n := len(of.ready) + of.making - want; n > 0 && len(of.ready) > 0; n-- {
			p.discardLocked(of.ready[0])
			if of.ready = of.ready[1:]; want > 0 {
				break
			}
		}
		if want == 0 && len(of.ready)+of.making == 0 && image != p.pinned {
			delete(p.images, image)
		}
	}
}

// planLocked returns how many sandboxes each image gets. The pinned image comes first, then the others by latest use.
func (p *Pool) planLocked() map[string]int {
	order := make([]string, 0, len(p.images))
	for image := range p.images {
		order = append(order, image)
	}
	slices.SortFunc(order, func(a, b string) int {
		switch p.pinned {
		case a:
			return -1
		case b:
			return 1
		}
		return p.images[b].used.Compare(p.images[a].used)
	})
	plan, room := make(map[string]int), p.cfg.Max
	for _, image := range order { // first the minimum of each, then the further demand
		if of := p.images[image]; image == p.pinned || time.Since(of.used) < staleAfter {
			plan[image] = min(p.cfg.Min, room)
			room -= plan[image]
		}
	}
	for _, image := range order {
		more := min(max(0, p.images[image].demand.target()-plan[image]), room)
		plan[image] += more
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
	for _, of := range p.images {
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
		if of := p.images[s.Image]; of != nil && !answers {
			if i := slices.Index(of.ready, s); i >= 0 { // otherwise a session has taken it
				of.ready = slices.Delete(of.ready, i, i+1)
				p.discardLocked(s)
			}
		}
		p.mu.Unlock()
	}
}

// add adds a sandbox whose guest has just answered to the pool of its image.
func (p *Pool) add(s *Sandbox) {
	s.seen = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.imagePool(s.Image)
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
	best := time.Duration(math.MaxInt64)
	for {
		image, limits := p.next()
		if image == "" {
			select {
			case <-p.kick:
				continue
			case <-ctx.Done():
				return
			}
		}
		p.awaitQuiet(ctx)
		began := time.Now()
		s, err := p.make(ctx, image, limits)
		p.made(ctx, image, s, err)
		took := time.Since(began)
		best = min(best, took)
		// A start that takes longer than the fastest one competed with other work and slowed that work by the same
		// time. The pause gives the time back.
		if !pause(ctx, min(took-best, tickEvery)) {
			return
		}
	}
}

// next returns the image and the limits of the sandbox to make next, and counts it as being made. It returns "" if no
// image needs one now.
func (p *Pool) next() (image string, limits proto.Limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most, now := 0, time.Now()
	for candidate, want := range p.planLocked() {
		of := p.images[candidate]
		if short := want - len(of.ready) - of.making; short > most && now.After(of.notUntil) {
			image, most = candidate, short
		}
	}
	if image != "" {
		p.images[image].making++
		limits = p.images[image].limits
	}
	return image, limits
}

// made records the result of an attempt.
func (p *Pool) made(ctx context.Context, image string, s *Sandbox, err error) {
	if err == nil {
		p.add(s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.images[image]
	if of.making--; err == nil {
		of.failures = 0
		return
	}
	if of.failures++; of.failures == 1 && ctx.Err() == nil {
		p.cfg.Log.Warn("keeping containers warm does not work; they are started when they are asked for, and this is "+
			"tried again less and less often", "image", image, "err", err)
	}
	of.notUntil = time.Now().Add(min(longBackOff, backOff<<min(of.failures-1, 10)))
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
func (p *Pool) make(ctx context.Context, image string, limits proto.Limits) (*Sandbox, error) {
	name := proto.NewID(proto.ContainerPrefix)
	p.mu.Lock()
	p.own[name] = true
	p.mu.Unlock()
	if err := p.maker.Make(ctx, name, image, limits); err != nil {
		p.mu.Lock()
		delete(p.own, name) // the runtime must list the sandbox if parts are left
		p.mu.Unlock()
		return nil, err
	}
	s, err := p.open(ctx, name, image, limits)
	if err != nil {
		p.removeLater(name)
	}
	return s, err
}

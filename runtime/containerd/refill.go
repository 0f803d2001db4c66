package containerd

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/session"
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
	// Before the pool makes a sandbox, it waits until no session has come, and no claim has been in progress, for the
	// time quiet. So a burst has the machine to itself. patience is the longest such wait.
	quiet, patience = 20 * time.Millisecond, 500 * time.Millisecond
	// backOff is the wait after the first failure. It doubles with each further failure, up to longBackOff.
	backOff, longBackOff = time.Second, time.Minute
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

// start starts the goroutines that fill and check the pool.
func (p *warmPool) start() {
	if !p.on() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	p.stop = cancel
	p.mu.Unlock()
	p.nudge(p.images)
	p.wg.Go(func() {
		p.adopt(ctx)
		// One CPU in four makes sandboxes, so requests have the others.
		for range max(1, runtime.NumCPU()/4) {
			p.wg.Go(func() { p.fill(ctx) })
		}
		p.keep(ctx)
	})
}

// close stops the pool's goroutines and removes all pooled sandboxes, as far as the time of a shutdown allows. The
// next daemon finds the rest.
func (p *warmPool) close() {
	p.mu.Lock()
	stop := p.stop
	p.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	p.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	p.mu.Lock()
	for image, s := range p.shelves {
		for _, m := range s.ready {
			p.discardLocked(m)
		}
		delete(p.shelves, image)
	}
	p.mu.Unlock()
	p.removePending(ctx)
}

// keep checks the pool every second, and when images change.
func (p *warmPool) keep(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.images:
			p.learnImages(ctx)
		case <-tick.C:
			p.age()
			p.probe(ctx)
			p.removePending(ctx)
		}
		p.nudge(p.kick)
	}
}

// learnImages reads which images have names. Images without a name get no more pooled sandboxes.
func (p *warmPool) learnImages(ctx context.Context) {
	named, err := p.r.images.NamedDigests(ctx)
	if err != nil {
		p.r.log.Warn("asking for the images that are to be kept warm; the next change of images tries again", "err",
			err)
		return
	}
	img, err := p.r.Images().Resolve(ctx, p.cfg.Image)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pinned = ""
	if err == nil {
		p.pinned = img.Digest
		p.shelf(img.Digest)
	}
	for image, s := range p.shelves {
		if !named[image] {
			s.used, s.demand = time.Time{}, demand{}
		}
	}
	p.trimLocked()
}

// age lets demand fade and drops surplus sandboxes.
func (p *warmPool) age() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shelves {
		s.demand.tick()
	}
	p.trimLocked()
}

// trimLocked drops surplus sandboxes, oldest first: one of each image per call, and all of images that are not in
// use.
func (p *warmPool) trimLocked() {
	plan := p.planLocked()
	for image, s := range p.shelves {
		want := plan[image]
		for n := len(s.ready) + s.making - want; n > 0 && len(s.ready) > 0; n-- {
			p.discardLocked(s.ready[0])
			if s.ready = s.ready[1:]; want > 0 {
				break
			}
		}
		if want == 0 && len(s.ready)+s.making == 0 && image != p.pinned {
			delete(p.shelves, image)
		}
	}
}

// planLocked returns how many sandboxes each image gets. The pinned image comes first, then the others by latest use.
func (p *warmPool) planLocked() map[string]int {
	order := make([]string, 0, len(p.shelves))
	for image := range p.shelves {
		order = append(order, image)
	}
	slices.SortFunc(order, func(a, b string) int {
		switch p.pinned {
		case a:
			return -1
		case b:
			return 1
		}
		return p.shelves[b].used.Compare(p.shelves[a].used)
	})
	plan, room := make(map[string]int), p.cfg.Max
	for _, image := range order { // first the minimum of each, then the further demand
		if s := p.shelves[image]; image == p.pinned || time.Since(s.used) < staleAfter {
			plan[image] = min(p.cfg.Min, room)
			room -= plan[image]
		}
	}
	for _, image := range order {
		more := min(max(0, p.shelves[image].demand.target()-plan[image]), room)
		plan[image] += more
		room -= more
	}
	return plan
}

// probe checks that the guests of pooled sandboxes answer, each every probeEvery. The sandboxes stay in the pool
// meanwhile, because a claim makes its own check.
func (p *warmPool) probe(ctx context.Context) {
	p.mu.Lock()
	var due []*pooledSandbox
	now := time.Now()
	for _, s := range p.shelves {
		for _, m := range s.ready {
			if !m.alive() || now.Sub(m.seen) > probeEvery {
				due = append(due, m)
			}
		}
	}
	p.mu.Unlock()
	for _, m := range due {
		answers := m.alive() && m.handshake(ctx, p.r.cfg.Handshake) == nil
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		m.seen = time.Now()
		if s := p.shelves[m.image]; s != nil && !answers {
			if i := slices.Index(s.ready, m); i >= 0 { // otherwise a session has taken it
				s.ready = slices.Delete(s.ready, i, i+1)
				p.discardLocked(m)
			}
		}
		p.mu.Unlock()
	}
}

// add adds a sandbox whose guest has just answered to the pool of its image.
func (p *warmPool) add(m *pooledSandbox) {
	m.seen = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelf(m.image)
	s.ready = append(s.ready, m)
}

// removePending removes the sandboxes whose removal is pending. Those that cannot be removed stay pending.
func (p *warmPool) removePending(ctx context.Context) {
	p.removing.Lock()
	defer p.removing.Unlock()
	p.mu.Lock()
	names := p.pendingRemoval
	p.pendingRemoval = nil
	p.mu.Unlock()
	var left []string
	for i, name := range names {
		if ctx.Err() != nil {
			left = append(left, names[i:]...)
			break
		}
		if err := p.remove(ctx, name); err != nil {
			left = append(left, name)
			if ctx.Err() == nil {
				p.r.log.Warn("removing a warm container; it is tried again", "sandbox", name, "err", err)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pendingRemoval = append(p.pendingRemoval, left...)
}

// fill makes pooled sandboxes, one after the other, until ctx ends.
func (p *warmPool) fill(ctx context.Context) {
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
		m, err := p.make(ctx, image, limits)
		p.made(ctx, image, m, err)
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
func (p *warmPool) next() (image string, limits proto.Limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most, now := 0, time.Now()
	for candidate, want := range p.planLocked() {
		s := p.shelves[candidate]
		if short := want - len(s.ready) - s.making; short > most && now.After(s.notUntil) {
			image, most = candidate, short
		}
	}
	if image != "" {
		p.shelves[image].making++
		limits = p.shelves[image].limits
	}
	return image, limits
}

// made records the result of an attempt.
func (p *warmPool) made(ctx context.Context, image string, m *pooledSandbox, err error) {
	if err == nil {
		p.add(m)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[image]
	if s.making--; err == nil {
		s.failures = 0
		return
	}
	if s.failures++; s.failures == 1 && ctx.Err() == nil {
		p.r.log.Warn("keeping containers warm does not work; they are started when they are asked for, and this is "+
			"tried again less and less often", "image", image, "err", err)
	}
	s.notUntil = time.Now().Add(min(longBackOff, backOff<<min(s.failures-1, 10)))
}

// awaitQuiet waits for the end of a burst.
func (p *warmPool) awaitQuiet(ctx context.Context) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		p.mu.Lock()
		left := quiet - time.Since(p.claimed)
		if p.claims > 0 {
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

// make makes a pooled sandbox. After a failure, the sandbox is removed at once or by removePending.
func (p *warmPool) make(ctx context.Context, image string, limits proto.Limits) (*pooledSandbox, error) {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails
	name := proto.ID(proto.ContainerPrefix, bits)
	p.mu.Lock()
	p.own[name] = true
	p.mu.Unlock()
	class, err := p.r.pickClass(proto.ClassRunc)
	if err == nil {
		err = p.r.makeOrUndo(ctx, name, session.Spec{Image: image, Class: proto.ClassRunc, Limits: limits}, class)
	}
	if err != nil {
		p.mu.Lock()
		delete(p.own, name) // List must name the sandbox if parts are left
		p.mu.Unlock()
		return nil, err
	}
	m, err := p.r.member(ctx, name, image, limits)
	if err != nil {
		p.mu.Lock()
		p.pendingRemoval = append(p.pendingRemoval, name)
		p.mu.Unlock()
	}
	return m, err
}

// member opens what the pool holds of a running sandbox without a session. It checks the isolation and waits until
// the guest answers.
func (r *Runtime) member(ctx context.Context, name, image string, limits proto.Limits) (_ *pooledSandbox, err error) {
	m := &pooledSandbox{name: name, image: image, limits: limits}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.pid, err = r.firstProcess(ctx, name); err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(m.pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watching a warm container: %w", err)
	}
	m.process = os.NewFile(uintptr(fd), "pidfd")
	if m.mounts, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", m.pid)); err != nil {
		return nil, err
	}
	if m.users, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", m.pid)); err != nil {
		return nil, err
	}
	if m.isolation, err = isolationOf(m.pid); err == nil {
		err = lacking(name, m.isolation)
	}
	if err == nil {
		m.conn, err = dialGuest(ctx, r.runPath(name))
	}
	if err == nil {
		err = m.handshake(ctx, r.cfg.Handshake)
	}
	if err == nil && !m.alive() { // the files above may belong to another process then
		err = errGuestEnded
	}
	return m, err
}

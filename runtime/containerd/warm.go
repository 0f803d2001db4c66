package containerd

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/launch"
	"berth/session"
)

// The warm pool: sandboxes that run and whose guest has answered, for sessions that are still to come. A member
// belongs to an image and to nobody; what makes it a session's is put in when it is claimed. Only runc sandboxes can
// be had this way: gVisor's gofer knows the files it was started with and no others.

// A Warm says how many sandboxes are kept ready.
type Warm struct {
	// Min are kept of every image that is in use, and of Image always; Max are there at most, all images together.
	// Max 0: there is no pool.
	Min, Max int

	Image  string       // name of the image that is in use from the start
	Limits proto.Limits // that its first members are made with; claims for others take some microseconds more
}

// A member is a sandbox that waits for a session. Who holds it, pool or claim, owns it alone.
type pooledSandbox struct {
	name   string
	image  string // digest
	limits proto.Limits
	pid    int
	seen   time.Time // when its guest last answered

	asking        sync.Mutex // held while the guest is asked
	mu            sync.Mutex // guards conn
	conn          net.Conn   // to its guest, which has answered; the session takes it over
	isolation     proto.Isolation
	process       *os.File // a pidfd
	mounts, users *os.File // its namespaces
}

// alive reports whether its first process runs, which takes a microsecond to find out.
func (m *pooledSandbox) alive() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(m.process.Fd()), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil
}

// close lets go of what the daemon holds of it; the sandbox goes on.
func (m *pooledSandbox) close() {
	m.closeFiles()
	if conn := m.takeConn(); conn != nil {
		_ = conn.Close()
	}
}

// closeFiles lets go of all but the guest.
func (m *pooledSandbox) closeFiles() {
	for _, f := range []*os.File{m.process, m.mounts, m.users} {
		if f != nil {
			f.Close()
		}
	}
}

// handshake asks its guest whether it is there, within handshakeTimeout. One call waits for another.
func (m *pooledSandbox) handshake(ctx context.Context, shake func(context.Context, net.Conn) (net.Conn, error)) error {
	m.asking.Lock()
	defer m.asking.Unlock()
	m.mu.Lock()
	conn := m.conn
	m.mu.Unlock()
	if conn == nil {
		return errGuestEnded
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, err := shake(ctx, conn)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn = conn
	return err
}

// takeConn hands out the connection to its guest; nil if there is none.
func (m *pooledSandbox) takeConn() net.Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn := m.conn
	m.conn = nil
	return conn
}

// spec is what setLimits needs to know of it.
func (m *pooledSandbox) spec(spec session.Spec) launch.Spec {
	b := launch.Spec{ID: m.name, Session: spec}
	if m.isolation.OwnCounts {
		b.FirstID = uint32(m.isolation.HostUID)
	}
	return b
}

// A shelf is the members of one image.
type imagePool struct {
	ready  []*pooledSandbox // the last one goes first: it was in use last
	making int
	limits proto.Limits // of the last session that wanted one, with the most open files that any of them had
	used   time.Time    // when that was
	demand demand

	failures int       // to make one, in a row
	notUntil time.Time // when the next try is due after a failure
}

// A warmPool is all shelves and who fills them. All its methods may be called of one that is off.
type warmPool struct {
	r   *Runtime
	cfg Warm

	mu             sync.Mutex // guards what follows
	shelves        map[string]*imagePool
	own            map[string]bool        // names of sandboxes that are the pool's: ready, being made, or going
	pendingRemoval []string               // those of them that could not be removed yet
	left           []containers.Container // those that daemons before us left, to be adopted or removed
	pinned         string                 // digest of cfg.Image; "" if it is not here
	claims         int                    // members that are being made somebody's
	claimed        time.Time              // when one was last asked for, or a claim last ended
	hits           int64
	misses         int64

	removing sync.Mutex // held while doomed ones are removed: whoever gets it next knows that they are

	kick   chan struct{} // there may be something to make
	images chan struct{} // names of images have changed
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func newWarmPool(r *Runtime, cfg Warm) *warmPool {
	return &warmPool{
		r: r, cfg: cfg, shelves: make(map[string]*imagePool), own: make(map[string]bool),
		kick: make(chan struct{}, 1), images: make(chan struct{}, 1),
	}
}

// KeepWarm begins to fill the pool, in the background, until Close. Call it once sessions are served: whoever waits
// for theirs goes first.
func (r *Runtime) KeepWarm() { r.warm.start() }

func (p *warmPool) on() bool { return p.cfg.Max > 0 }

// owns reports whether a sandbox of that name is the pool's own and nobody else's business.
func (p *warmPool) owns(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own[name]
}

// take gives out a member for spec; nil if there is none. Release or discard follows.
func (p *warmPool) take(spec session.Spec) *pooledSandbox {
	if !p.on() || spec.Class != proto.ClassRunc {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[spec.Image]
	if s == nil {
		return nil
	}
	n := len(s.ready)
	// what a process may open can be lowered and, on most machines, never be raised again
	if n == 0 || s.ready[n-1].limits.OpenFiles < spec.Limits.OpenFiles {
		return nil
	}
	m := s.ready[n-1]
	s.ready = s.ready[:n-1]
	p.claims++
	return m
}

// asked notes that a session wanted a sandbox, and whether it got one of ours.
func (p *warmPool) asked(spec session.Spec, got bool) {
	if !p.on() || spec.Class != proto.ClassRunc {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelf(spec.Image)
	p.claimed = time.Now()
	most := max(s.limits.OpenFiles, spec.Limits.OpenFiles)
	s.limits, s.used = spec.Limits, p.claimed
	s.limits.OpenFiles = most
	s.ready = slices.DeleteFunc(s.ready, func(m *pooledSandbox) bool {
		few := m.limits.OpenFiles < most
		if few {
			p.discardLocked(m)
		}
		return few
	})
	s.demand.note()
	if got {
		p.hits++
	} else {
		p.misses++
	}
	p.nudge(p.kick)
}

// shelf finds or makes the shelf of an image. Called with mu held.
func (p *warmPool) shelf(image string) *imagePool {
	s := p.shelves[image]
	if s == nil {
		s = &imagePool{limits: p.cfg.Limits}
		p.shelves[image] = s
	}
	return s
}

func (p *warmPool) nudge(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it rings already
	}
}

// imagesChanged has the pool look which images there are.
func (p *warmPool) imagesChanged() { p.nudge(p.images) }

// release makes a member that was taken a session's: from here on its name and its guest are the claim's.
func (p *warmPool) release(m *pooledSandbox) {
	m.closeFiles()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, m.name)
	p.claimedLocked()
}

// discard has a member that was taken removed in the background.
func (p *warmPool) discard(m *pooledSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discardLocked(m)
	p.claimedLocked()
}

// claimedLocked notes the end of a claim.
func (p *warmPool) claimedLocked() {
	p.claims--
	p.claimed = time.Now()
}

func (p *warmPool) discardLocked(m *pooledSandbox) {
	m.close()
	p.pendingRemoval = append(p.pendingRemoval, m.name)
	p.nudge(p.kick)
}

// forget removes all members of an image, now: none that is made uses it when this returns, unless it could not be
// removed.
func (p *warmPool) forget(ctx context.Context, image string) {
	p.mu.Lock()
	if s := p.shelves[image]; s != nil && s.making == 0 {
		for _, m := range s.ready {
			p.discardLocked(m)
		}
		delete(p.shelves, image)
	}
	p.mu.Unlock()
	p.removePending(ctx) // those too that were to go before
}

// remove takes away a sandbox of the pool.
func (p *warmPool) remove(ctx context.Context, name string) error {
	unlock, err := p.r.locks.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.r.removeSandbox(ctx, name); err != nil {
		return fmt.Errorf("removing a warm container: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, name)
	return nil
}

// WarmCounts is what the pool holds and has done.
type WarmCounts struct {
	Ready, Making map[string]int // by digest
	Hits, Misses  int64          // sessions that got a member, and that could have but had to be started
}

// WarmCounts counts the pool.
func (r *Runtime) WarmCounts() WarmCounts {
	p := r.warm
	p.mu.Lock()
	defer p.mu.Unlock()
	n := WarmCounts{Ready: make(map[string]int), Making: make(map[string]int), Hits: p.hits, Misses: p.misses}
	for image, s := range p.shelves {
		n.Ready[image], n.Making[image] = len(s.ready), s.making
	}
	return n
}

// inventory is names as sessions know them: claimed sandboxes by their sessions, those of the pool not at all.
func (r *Runtime) inventory(names []string) []string {
	var ids []string
	for _, name := range names {
		if r.warm.owns(name) {
			continue
		}
		// Asked second: a member is claimed before the pool lets go of it.
		if id, ok := r.claims.session(name); ok {
			name = id
		}
		ids = append(ids, name)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

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

// The warm pool holds running sandboxes, whose guests have answered, for later sessions. A pooled sandbox belongs to
// an image and to no session. A claim adds everything that belongs to the session. Only runc sandboxes can be pooled:
// gVisor's gofer knows only the files that it was started with.

// A Warm says how many sandboxes are kept ready.
type Warm struct {
	// Min is the number kept of every image that is in use, and of Image always. Max is the limit for all images
	// together. With Max 0 there is no pool.
	Min, Max int

	Image  string       // name of the image that counts as in use from the start
	Limits proto.Limits // of the first pooled sandboxes; claims with other limits take some microseconds more
}

// A pooledSandbox is a sandbox that waits for a session. Its holder, the pool or a claim, is its only owner.
type pooledSandbox struct {
	name   string
	image  string // digest
	limits proto.Limits
	pid    int
	seen   time.Time // when its guest last answered

	asking        sync.Mutex // held during a handshake with the guest
	mu            sync.Mutex // guards conn
	conn          net.Conn   // to its guest, which has answered; the session takes it
	isolation     proto.Isolation
	process       *os.File // a pidfd
	mounts, users *os.File // its namespaces
}

// alive reports whether its first process runs. The check takes a microsecond.
func (m *pooledSandbox) alive() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(m.process.Fd()), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil
}

// close closes the files and the connection that the daemon holds; the sandbox goes on.
func (m *pooledSandbox) close() {
	m.closeFiles()
	if conn := m.takeConn(); conn != nil {
		_ = conn.Close()
	}
}

// closeFiles closes all except the connection to the guest.
func (m *pooledSandbox) closeFiles() {
	for _, f := range []*os.File{m.process, m.mounts, m.users} {
		if f != nil {
			f.Close()
		}
	}
}

// handshake checks that its guest answers within handshakeTimeout. Calls wait for each other.
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

// takeConn returns the connection to its guest and gives up the ownership; nil if there is none.
func (m *pooledSandbox) takeConn() net.Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn := m.conn
	m.conn = nil
	return conn
}

// spec returns the launch.Spec that launch.SetLimits needs for it.
func (m *pooledSandbox) spec(spec session.Spec) launch.Spec {
	b := launch.Spec{ID: m.name, Session: spec}
	if m.isolation.OwnCounts {
		b.FirstID = uint32(m.isolation.HostUID)
	}
	return b
}

// An imagePool holds the pooled sandboxes of one image.
type imagePool struct {
	ready  []*pooledSandbox // taken from the end: that one was in use last
	making int
	limits proto.Limits // of the latest session that wanted one, with the highest OpenFiles of any session
	used   time.Time    // time of the latest request
	demand demand

	failures int       // failed attempts in a row
	notUntil time.Time // no attempt before this time
}

// A warmPool holds the pools of all images and fills them. All methods work on a pool that is off.
type warmPool struct {
	r   *Runtime
	cfg Warm

	mu             sync.Mutex // guards the fields below, up to misses
	shelves        map[string]*imagePool
	own            map[string]bool        // names of the pool's sandboxes: ready, being made, or being removed
	pendingRemoval []string               // names in own that could not be removed yet
	left           []containers.Container // sandboxes of earlier daemons, to be adopted or removed
	pinned         string                 // digest of cfg.Image; "" if the image is missing
	claims         int                    // number of claims in progress
	claimed        time.Time              // time of the latest request, or of the end of the latest claim
	hits           int64
	misses         int64

	removing sync.Mutex // held during pending removals; the next holder knows that they are done

	kick   chan struct{} // a sandbox may have to be made
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

// KeepWarm starts to fill the pool in the background, until Close. Call it once sessions are served, because waiting
// sessions come first.
func (r *Runtime) KeepWarm() { r.warm.start() }

func (p *warmPool) on() bool { return p.cfg.Max > 0 }

// owns reports whether the sandbox of that name belongs to the pool only.
func (p *warmPool) owns(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own[name]
}

// take takes a pooled sandbox for spec; nil if there is none. The caller must call release or discard afterwards.
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
	// The limit of open files can be lowered. On most machines it can never be raised again.
	if n == 0 || s.ready[n-1].limits.OpenFiles < spec.Limits.OpenFiles {
		return nil
	}
	m := s.ready[n-1]
	s.ready = s.ready[:n-1]
	p.claims++
	return m
}

// asked records that a session wanted a sandbox, and whether the session got a pooled one.
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

// shelf returns the pool of an image, and makes it if it is missing. Called with mu held.
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
	default: // a signal is pending already
	}
}

// imagesChanged makes the pool read again which images exist.
func (p *warmPool) imagesChanged() { p.nudge(p.images) }

// release hands a taken sandbox to its session. From then on its name and its guest belong to the claim.
func (p *warmPool) release(m *pooledSandbox) {
	m.closeFiles()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, m.name)
	p.claimedLocked()
}

// discard removes a taken sandbox in the background.
func (p *warmPool) discard(m *pooledSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discardLocked(m)
	p.claimedLocked()
}

// claimedLocked records the end of a claim.
func (p *warmPool) claimedLocked() {
	p.claims--
	p.claimed = time.Now()
}

func (p *warmPool) discardLocked(m *pooledSandbox) {
	m.close()
	p.pendingRemoval = append(p.pendingRemoval, m.name)
	p.nudge(p.kick)
}

// forget removes all pooled sandboxes of an image at once. When it returns, no finished one uses the image, unless
// its removal failed.
func (p *warmPool) forget(ctx context.Context, image string) {
	p.mu.Lock()
	if s := p.shelves[image]; s != nil && s.making == 0 {
		for _, m := range s.ready {
			p.discardLocked(m)
		}
		delete(p.shelves, image)
	}
	p.mu.Unlock()
	p.removePending(ctx) // earlier pending removals, too
}

// remove removes a sandbox of the pool.
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

// WarmCounts are the counts of the pool's sandboxes and of its hits.
type WarmCounts struct {
	Ready, Making map[string]int // by image digest
	Hits, Misses  int64          // sessions that got a pooled sandbox; sessions that could have but were started cold
}

// WarmCounts returns the counts of the pool.
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

// inventory translates names for sessions: a claimed sandbox gets its session's ID, and the pool's sandboxes are left
// out.
func (r *Runtime) inventory(names []string) []string {
	var ids []string
	for _, name := range names {
		if r.warm.owns(name) {
			continue
		}
		// Checked second, because a claim is recorded before the pool releases the sandbox.
		if id, ok := r.claims.session(name); ok {
			name = id
		}
		ids = append(ids, name)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

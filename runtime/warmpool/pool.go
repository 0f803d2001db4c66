// Package warmpool keeps started sandboxes ready for later sessions. It is a speed layer.
//
// What it does: the pool holds running sandboxes whose guests have answered. A pooled sandbox belongs to an image and a
// runtime class, its Kind, and to no session. The runtime takes one, binds it to a session (workspace, limits, name),
// and hands it over or discards it. In the background the pool makes more, checks that they answer, and removes what is
// surplus. After a crash it takes over the sandboxes that the last daemon left (adopt.go).
//
// What it buys: a create takes 2.2 ms out of the pool, and 11 to 19 ms without it (rows warm and cold of
// docs/benchmarks.md; docs/notes/creates.md). Under gVisor it takes some 5 ms, and 250 ms without.
//
// How it is switched off: with --warm-max 0 the pool is empty, Take finds nothing, and every start is a cold one.
//
// The pool decides when sandboxes are made and removed. How that is done, the runtime says: it implements Maker. The
// runtime also records which session took a sandbox; see docs/decisions/0011.
package warmpool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"berth/proto"
)

// A Size says how many sandboxes are kept ready.
type Size struct {
	// Min is the number kept of every Kind that is in use, and of Image with Class always. Max is the limit for all
	// together. With Max 0 there is no pool.
	Min, Max int

	Image  string             // name of the image that counts as in use from the start
	Class  proto.RuntimeClass // of Image's first pooled sandboxes; "" is runc
	Limits proto.Limits       // of the first pooled sandboxes; see Kind.fits for a session with others
}

// A Kind is what a pooled sandbox is made for.
type Kind struct {
	Image   string // digest
	Class   proto.RuntimeClass
	Network bool // gVisor's kernel has devices, which it takes only at its start
	Sudo    bool // programs may gain privileges; no process can get that back
}

// fits reports whether a session with limits want can have a sandbox that was made with limits had.
func (k Kind) fits(had, want proto.Limits) bool {
	if k.Class == proto.ClassGVisor { // its kernel has its limits from the start; that of the disk is the host's
		had.DiskBytes = want.DiskBytes
		return had == want
	}
	// The limit of open files can be lowered. On most machines it can never be raised again.
	return had.OpenFiles >= want.OpenFiles
}

// A Handshake checks that the guest at the other end of a connection answers. It returns the connection to keep. On
// failure it closes the connection.
type Handshake = func(context.Context, net.Conn) (net.Conn, error)

// A Config has what a Pool works with. All fields but Size are required.
type Config struct {
	Size
	Guest     string // path of the program that guests of new sandboxes run
	Workspace string // path inside at which a session's workspace is mounted
	Handshake Handshake
	Log       *slog.Logger
}

// A Maker makes, checks and removes the pool's sandboxes. The runtime implements it.
type Maker interface {
	// Make makes a sandbox without a session. If it fails, nothing of the sandbox is left, or the runtime lists the
	// rest.
	Make(ctx context.Context, name string, kind Kind, limits proto.Limits) error
	// Dial connects to the guest of a running sandbox. A sandbox that lacks something promised is an error.
	Dial(ctx context.Context, name string, kind Kind) (Running, error)
	// Remove removes a sandbox with all its parts.
	Remove(ctx context.Context, name string) error
	// Images returns the digests of all images that have a name, and the digest of the image ref; "" if it is
	// missing.
	Images(ctx context.Context, ref string) (named map[string]bool, digest string, err error)
}

// A Running describes a sandbox that runs. Process numbers are the host's.
type Running struct {
	PID       int             // the process that is the sandbox
	Mounts    int             // the process in whose namespaces a workspace is mounted
	Isolation proto.Isolation // of PID
	Conn      net.Conn        // to its guest
}

// A kindPool holds the pooled sandboxes of one kind.
type kindPool struct {
	ready  []*Sandbox // taken from the end: that one was in use last
	making int
	limits proto.Limits // of the latest session that wanted one; under runc with the highest OpenFiles of any session
	used   time.Time    // time of the latest request
	demand demand
	best   time.Duration // time of the fastest start; 0 before the first

	failures int       // failed attempts in a row
	notUntil time.Time // no attempt before this time
}

// A Pool holds the pools of all kinds and fills them. All methods work on a pool that is off.
type Pool struct {
	maker Maker
	cfg   Config

	mu             sync.Mutex // guards the fields below, up to misses
	kinds          map[Kind]*kindPool
	own            map[string]bool // names of the pool's sandboxes: ready, being made, or being removed
	pendingRemoval []string        // names in own that could not be removed yet
	left           []Left          // sandboxes of earlier daemons, to be adopted or removed
	pinned         Kind            // cfg.Image and cfg.Class; without Image if the image is missing
	taken          int             // sandboxes that are being bound to a session
	asked          time.Time       // time of the latest request, or of the end of the latest binding
	hits           int64
	misses         int64

	removing sync.Mutex // held during pending removals; the next holder knows that they are done

	kick    chan struct{} // a sandbox may have to be made
	renamed chan struct{} // names of images have changed
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// New returns an empty pool. Start fills it.
func New(cfg Config, maker Maker) *Pool {
	cfg.Min, cfg.Class = min(cfg.Min, cfg.Max), cmp.Or(cfg.Class, proto.ClassRunc)
	return &Pool{
		maker: maker, cfg: cfg, kinds: make(map[Kind]*kindPool), own: make(map[string]bool),
		kick: make(chan struct{}, 1), renamed: make(chan struct{}, 1),
	}
}

func (p *Pool) on() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg.Max > 0
}

// Resize changes Size.Min and Size.Max. Surplus sandboxes are removed within seconds. A pool that was off starts.
func (p *Pool) Resize(least, most int) {
	p.mu.Lock()
	p.cfg.Min, p.cfg.Max = min(least, most), most
	p.mu.Unlock()
	p.Start()
	nudge(p.kick)
}

// Owns reports whether the sandbox of that name belongs to the pool only.
func (p *Pool) Owns(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own[name]
}

// Take takes a sandbox of a kind for a session with these limits; nil if there is none. The caller must call
// HandOver or Discard afterwards.
func (p *Pool) Take(kind Kind, limits proto.Limits) *Sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.kinds[kind]
	if of == nil {
		return nil
	}
	for i, s := range slices.Backward(of.ready) {
		if kind.fits(s.Limits, limits) {
			of.ready = slices.Delete(of.ready, i, i+1)
			p.taken++
			return s
		}
	}
	return nil
}

// HandOver gives a taken sandbox to its session. From then on its name and its guest belong to the session.
func (p *Pool) HandOver(s *Sandbox, limits proto.Limits) {
	s.closeFiles()
	p.mu.Lock()
	delete(p.own, s.Name)
	p.bound()
	p.mu.Unlock()
	p.note(s.Kind, limits, false)
}

// Discard removes a taken sandbox in the background.
func (p *Pool) Discard(s *Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discardLocked(s)
	p.bound()
}

// bound records the end of a binding. Called with mu held.
func (p *Pool) bound() {
	p.taken--
	p.asked = time.Now()
}

// Missed records that a session found no sandbox in the pool and was started without it.
func (p *Pool) Missed(kind Kind, limits proto.Limits) { p.note(kind, limits, true) }

// note records that a session wanted a sandbox, and whether the pool had none for it.
func (p *Pool) note(kind Kind, limits proto.Limits, missed bool) {
	if !p.on() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.kindPool(kind)
	p.asked = time.Now()
	if kind.Class == proto.ClassRunc { // one with more fits all sessions
		limits.OpenFiles = max(of.limits.OpenFiles, limits.OpenFiles)
	}
	of.limits, of.used = limits, p.asked
	if missed {
		p.misses++
		p.dropUnfitLocked(kind, of)
	} else {
		p.hits++
	}
	of.demand.note()
	nudge(p.kick)
}

// dropUnfitLocked makes room for sandboxes with the limits of a session that got none. Under gVisor, where sessions
// with other limits need others, that is room for one. So the pool comes to hold what sessions ask for.
func (p *Pool) dropUnfitLocked(kind Kind, of *kindPool) {
	unfit := func(s *Sandbox) bool { return !kind.fits(s.Limits, of.limits) }
	if kind.Class == proto.ClassGVisor {
		if len(of.ready) > 0 && !slices.ContainsFunc(of.ready, func(s *Sandbox) bool { return !unfit(s) }) {
			p.dropOneLocked(of)
		}
		return
	}
	of.ready = slices.DeleteFunc(of.ready, func(s *Sandbox) bool {
		if !unfit(s) {
			return false
		}
		p.discardLocked(s)
		return true
	})
}

// dropOneLocked removes one of the sandboxes that are ready: the oldest of those whose limits another one has, too, or
// else the oldest.
func (p *Pool) dropOneLocked(of *kindPool) {
	i := max(0, slices.IndexFunc(of.ready, func(s *Sandbox) bool {
		return slices.ContainsFunc(of.ready, func(o *Sandbox) bool { return o != s && o.Limits == s.Limits })
	}))
	p.discardLocked(of.ready[i])
	of.ready = slices.Delete(of.ready, i, i+1)
}

// kindPool returns the pool of a kind, and makes it if it is missing. Called with mu held.
func (p *Pool) kindPool(kind Kind) *kindPool {
	of := p.kinds[kind]
	if of == nil {
		of = &kindPool{limits: p.cfg.Limits}
		p.kinds[kind] = of
	}
	return of
}

// nudge sends a signal, unless one is pending already.
func nudge(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// ImagesChanged makes the pool read again which images exist.
func (p *Pool) ImagesChanged() { nudge(p.renamed) }

func (p *Pool) discardLocked(s *Sandbox) {
	s.Close()
	p.pendingRemoval = append(p.pendingRemoval, s.Name)
	nudge(p.kick)
}

// Forget removes all pooled sandboxes of an image at once. When it returns, no finished one uses the image, unless
// its removal failed.
func (p *Pool) Forget(ctx context.Context, image string) {
	p.mu.Lock()
	for kind, of := range p.kinds {
		if kind.Image == image && of.making == 0 {
			for _, s := range of.ready {
				p.discardLocked(s)
			}
			delete(p.kinds, kind)
		}
	}
	p.mu.Unlock()
	p.RemovePending(ctx) // earlier pending removals, too
}

// RemovePending removes the sandboxes whose removal is pending. Those that cannot be removed stay pending.
func (p *Pool) RemovePending(ctx context.Context) {
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
				p.cfg.Log.Warn("removing a warm container; it is tried again", "sandbox", name, "err", err)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pendingRemoval = append(p.pendingRemoval, left...)
}

func (p *Pool) remove(ctx context.Context, name string) error {
	if err := p.maker.Remove(ctx, name); err != nil {
		return fmt.Errorf("removing a warm container: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, name)
	return nil
}

// Counts are the counts of the pool's sandboxes and of its hits.
type Counts struct {
	Ready, Making map[string]int // by image digest
	Failures      map[string]int // failed attempts in a row to make a sandbox, by image digest
	Hits, Misses  int64          // sessions that got a pooled sandbox; sessions that could have but were started cold
}

// Counts returns the counts of the pool.
func (p *Pool) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := Counts{Ready: make(map[string]int), Making: make(map[string]int), Failures: make(map[string]int),
		Hits: p.hits, Misses: p.misses}
	for kind, of := range p.kinds {
		n.Ready[kind.Image] += len(of.ready)
		n.Making[kind.Image] += of.making
		n.Failures[kind.Image] += of.failures
	}
	return n
}

// Ready returns the sandboxes of an image that wait for a session. Tests use it.
func (p *Pool) Ready(image string) (all []*Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, of := range p.kinds {
		if kind.Image == image {
			all = append(all, of.ready...)
		}
	}
	return all
}

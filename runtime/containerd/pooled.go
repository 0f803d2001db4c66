package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/isolation"
	"berth/runtime/launch"
	"berth/runtime/layer"
	"berth/runtime/mountns"
	"berth/runtime/ocispec"
	"berth/runtime/warmpool"
	"berth/session"
)

// A sandbox of the warm pool is made before its session is known. So it has a name of its own, and the limits of the
// latest session at that time. This file binds such a sandbox to a session: it attaches the workspace, sets the
// limits, and records the claim. A claim is a link in the sandbox's layer, see diskpool.Pool.WriteClaim, and is in
// memory as well.

// poolable reports whether the warm pool can have a sandbox for a session.
func (r *Runtime) poolable(spec session.Spec) bool {
	// A layer is mounted before a sandbox starts.
	if spec.Layer != "" && diskpool.Exists(r.disk.KeptPath(spec.Layer)) {
		return false
	}
	// gVisor's kernel takes a host name only from who starts it, and its shim does not say where the gofer is.
	named := spec.Hostname != "" && spec.Hostname != session.DefaultHostname
	return spec.Class != proto.ClassGVisor || r.direct && !named
}

// takePooled starts session id with a sandbox of the warm pool. It returns false if that fails; then nothing has
// changed, except that the workspace may exist.
func (r *Runtime) takePooled(ctx context.Context, id string, spec session.Spec) bool {
	if !r.poolable(spec) {
		return false
	}
	s := r.warm.Take(r.kindOf(spec), spec.Limits)
	if s == nil {
		return false
	}
	if err := r.bindSandbox(ctx, s, id, spec); err != nil {
		r.log.Debug("a warm container could not be used", "sandbox", s.Name, "container", id, "err", err)
		r.warm.Discard(s) // the session may be bound to it in part
		return false
	}
	r.log.Debug("a warm container is claimed", "sandbox", s.Name, "container", id)
	r.warm.HandOver(s, spec.Limits)
	return true
}

// kindOf returns the kind of pooled sandboxes that a session can have.
func (r *Runtime) kindOf(spec session.Spec) warmpool.Kind {
	return warmpool.Kind{Image: spec.Image, Class: spec.Class, Network: r.pairs(spec), Sudo: spec.Sudo}
}

// bindSandbox binds a pooled sandbox to the session while the guest answers a handshake. It attaches the workspace
// first. From that, the next daemon knows that a sandbox without a claim is no longer as it was made. It writes the
// claim last: no caller learns of a claim before that.
func (r *Runtime) bindSandbox(ctx context.Context, s *warmpool.Sandbox, id string, spec session.Spec) error {
	// A caller that leaves meanwhile gets its error later, from code that has more to undo. Watching ctx here would
	// cost more than the handshake.
	answer := make(chan error, 1)
	go func() { answer <- s.Shake(context.WithoutCancel(ctx)) }()
	err := r.attachWorkspace(s, spec)
	if err == nil {
		err = r.fitLimits(s, spec.Limits)
	}
	if err == nil && spec.Hostname != "" && spec.Hostname != session.DefaultHostname {
		err = r.nameHost(s.Name, s.PID, spec.Hostname)
		if !s.Alive() { // another process may have its number by now
			err = warmpool.ErrEnded
		}
		if err == nil { // the name is no user's change
			err = layer.Mark(r.disk.LayerPath(s.Name))
		}
	}
	if silent := <-answer; silent != nil {
		return silent
	}
	if err == nil {
		err = r.disk.Own(spec.Owner, r.disk.LayerPath(s.Name))
	}
	if err == nil {
		err = r.disk.WriteClaim(s.Name, claimOf(id, spec))
	}
	if err == nil {
		r.index.add(s.Name, spec.Workspace)
		r.claims.put(id, claim{sandbox: s.Name, isolation: &s.Isolation, conn: s.TakeConn()})
	}
	return err
}

// attachWorkspace attaches the workspace, which it makes if it is missing, and gives the file systems in memory their
// sizes.
func (r *Runtime) attachWorkspace(s *warmpool.Sandbox, spec session.Spec) error {
	path, err := r.makeWorkspace(spec)
	if err != nil {
		return err
	}
	tree, err := mountns.Detach(path, 0, s.Users)
	if err != nil {
		return fmt.Errorf("taking the workspace: %w", err)
	}
	defer unix.Close(tree)
	root := "/"
	if s.Class == proto.ClassGVisor {
		root = launch.GoferRoot
	}
	at := filepath.Join(root, layer.InsideWorkspace)
	err = mountns.Visit(s.Mounts, func() error {
		if err := mountns.Attach(tree, at); err != nil {
			return fmt.Errorf("attaching the workspace: %w", err)
		}
		return resize(s.Limits, spec.Limits) // under gVisor, the two are the same
	})
	if err == nil && s.Class == proto.ClassGVisor {
		err = r.gvisor.CheckUnseen(s.PID, at)
	}
	return err
}

// resize gives the file systems in memory the sizes that ocispec.KernelMounts has for these limits. Call it inside
// the sandbox.
func resize(had, want proto.Limits) error {
	if had.MemoryBytes == want.MemoryBytes {
		return nil
	}
	for _, mnt := range ocispec.KernelMounts(want) {
		if mnt.Destination != "/dev/shm" {
			continue
		}
		sizes := slices.DeleteFunc(mnt.Options, func(o string) bool {
			return !strings.HasPrefix(o, "size=") &&
				!strings.HasPrefix(o, "nr_inodes=")
		})
		// A remount without the mount's flags would remove them.
		if err := unix.Mount("", mnt.Destination, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV,
			strings.Join(sizes, ",")); err != nil {
			return fmt.Errorf("resizing %s: %w", mnt.Destination, err)
		}
	}
	return nil
}

// fitLimits changes the limits of a pooled sandbox to want. The limits come from the same numbers from which
// ocispec.New makes those of a sandbox that is made for its session. resize has set the sizes of its file systems in
// memory.
func (r *Runtime) fitLimits(s *warmpool.Sandbox, want proto.Limits) error {
	had := s.Limits
	if had == want {
		return nil
	}
	if err := cgroup.Change(s.Name, cgroup.Resources(s.Class, had), cgroup.Resources(s.Class, want)); err != nil {
		return fmt.Errorf("limiting a warm container: %w", err)
	}
	if had.OpenFiles != want.OpenFiles {
		if !s.Alive() { // another process may have its number by now
			return warmpool.ErrEnded
		}
		b := ocispec.Spec{Class: s.Class, Limits: want}
		if s.Isolation.OwnCounts {
			b.FirstID = uint32(s.Isolation.HostUID)
		}
		if err := ocispec.SetRlimits(b, s.PID); err != nil {
			return err
		}
	}
	if had.DiskBytes != want.DiskBytes {
		return r.disk.Limit(r.disk.LayerPath(s.Name), want.DiskBytes)
	}
	return nil
}

// A claim says which sandbox serves a session if the sandbox has another name than the session.
type claim struct {
	sandbox   string
	isolation *proto.Isolation // as read when the sandbox was made; nil after a restart
	conn      net.Conn         // to its guest, until the first Dial
}

// claims holds all claims. The zero value holds none.
type claims struct {
	mu sync.RWMutex // guards the maps
	of map[string]claim
	by map[string]string // sandbox to session
}

// sandbox returns the name of the sandbox of session id: the ID itself, unless the session has claimed a sandbox.
func (c *claims) sandbox(id string) string {
	if held, ok := c.get(id); ok {
		return held.sandbox
	}
	return id
}

func (c *claims) get(id string) (claim, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	held, ok := c.of[id]
	return held, ok
}

// session returns the session that has claimed the sandbox of that name.
func (c *claims) session(sandbox string) (id string, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, ok = c.by[sandbox]
	return id, ok
}

func (c *claims) put(id string, held claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of, c.by = make(map[string]claim), make(map[string]string)
	}
	c.of[id], c.by[held.sandbox] = held, id
}

func (c *claims) drop(id string) {
	if conn := c.takeConn(id); conn != nil {
		_ = conn.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, c.of[id].sandbox)
	delete(c.of, id)
}

// takeConn returns the connection that is kept to the guest of session id, once; nil if there is none.
func (c *claims) takeConn(id string) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.of[id]
	if held.conn == nil {
		return nil
	}
	conn := held.conn
	held.conn = nil
	c.of[id] = held
	return conn
}

// close closes the connections that were not taken.
func (c *claims) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, held := range c.of {
		if held.conn != nil {
			_ = held.conn.Close()
			held.conn = nil
			c.of[id] = held
		}
	}
}

// learnClaims reads the claims that earlier daemons wrote.
func (r *Runtime) learnClaims() error {
	layers, err := r.disk.Layers()
	if err != nil {
		return fmt.Errorf("reading the layers there are: %w", err)
	}
	for _, name := range layers {
		c, err := r.disk.ReadClaim(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading whose a sandbox is: %w", err)
		}
		if proto.ValidID(proto.ContainerPrefix, c.Session) && c.Session != name {
			r.index.add(name, c.Workspace)
			r.claims.put(c.Session, claim{sandbox: name})
		}
	}
	return nil
}

// inventory translates names for sessions: a claimed sandbox gets its session's ID, and the pool's sandboxes are left
// out.
func (r *Runtime) inventory(names []string) []string {
	var ids []string
	for _, name := range names {
		if r.warm.Owns(name) {
			continue
		}
		// Checked second, because a claim is recorded before the pool hands the sandbox over.
		if id, ok := r.claims.session(name); ok {
			name = id
		}
		ids = append(ids, name)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// A poolMaker makes the sandboxes of the warm pool. It is a warmpool.Maker.
type poolMaker struct{ r *Runtime }

func (m poolMaker) Make(ctx context.Context, name string, kind warmpool.Kind, limits proto.Limits) error {
	class, err := m.r.pickClass(kind.Class)
	if err != nil {
		return err
	}
	spec := session.Spec{Image: kind.Image, Class: kind.Class, Network: kind.Network, Sudo: kind.Sudo,
		Limits: limits}
	return m.r.makeOrUndo(ctx, name, spec, class)
}

func (m poolMaker) Dial(ctx context.Context, name string, kind warmpool.Kind) (run warmpool.Running, err error) {
	if run.PID, err = m.r.firstProcess(ctx, name); err != nil {
		return run, err
	}
	run.Mounts = run.PID
	if kind.Class == proto.ClassGVisor {
		if run.Mounts, err = m.r.gvisor.Gofer(name); err != nil {
			return run, err
		}
	}
	if run.Isolation, err = isolation.Of(run.PID); err != nil {
		return run, err
	}
	if kind.Class == proto.ClassGVisor {
		run.Isolation.OwnCounts = true // its kernel counts
	}
	if err = isolation.Lacking(name, run.Isolation, kind.Sudo); err == nil {
		run.Conn, err = dialGuest(ctx, m.r.runPath(name))
	}
	return run, err
}

func (m poolMaker) Remove(ctx context.Context, name string) error {
	unlock, err := m.r.locks.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	return m.r.removeSandbox(ctx, name)
}

func (m poolMaker) Images(ctx context.Context, ref string) (named map[string]bool, digest string, err error) {
	if named, err = m.r.images.NamedDigests(ctx); err != nil {
		return nil, "", err
	}
	img, _ := m.r.images.Resolve(ctx, ref) // without it, no image is in use from the start
	return named, img.Digest, nil
}

// KeepWarm starts to fill the pool in the background, until Close.
func (r *Runtime) KeepWarm() { r.warm.Start() }

// ResizeWarm changes how many sandboxes the pool keeps of each kind, and of all together.
func (r *Runtime) ResizeWarm(least, most int) { r.warm.Resize(least, most) }

// WarmCounts returns the counts of the pool.
func (r *Runtime) WarmCounts() warmpool.Counts { return r.warm.Counts() }

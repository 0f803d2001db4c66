package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"

	"berth/proto"
)

// A sandbox of the warm pool is made before its session is known, so it has a name of its own. A link in its layer
// names the session that it serves, see diskpool.Pool.WriteClaim. The contents of the links are in memory as well.

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

// recordClaim writes a claim to disk. It is the last step of a claim: no caller learns of a claim before that.
func (r *Runtime) recordClaim(id, workspace string, held claim) error {
	if err := r.disk.WriteClaim(held.sandbox, id, workspace); err != nil {
		return err
	}
	r.index.add(held.sandbox, workspace)
	r.claims.put(id, held)
	return nil
}

// learnClaims reads the claims that earlier daemons wrote.
func (r *Runtime) learnClaims() error {
	layers, err := r.disk.Layers()
	if err != nil {
		return fmt.Errorf("reading the layers there are: %w", err)
	}
	for _, name := range layers {
		id, workspace, err := r.disk.ReadClaim(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading whose a sandbox is: %w", err)
		}
		if proto.ValidID(proto.ContainerPrefix, id) {
			r.index.add(name, workspace)
			r.claims.put(id, claim{sandbox: name})
		}
	}
	return nil
}

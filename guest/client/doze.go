package client

import (
	"bytes"
	"context"
	"os"
	"strconv"

	"berth/guest/wire"
	"berth/proto"
)

// IsDoze reports whether process pid of this machine has the name wire.DozeName. A dozing guest has it, but any other
// process may use that name too.
func IsDoze(pid int) bool {
	args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.HasPrefix(args, []byte(wire.DozeName+"\x00"))
}

// Doze makes the guest give back nearly all of its memory until the next request. That request then takes some
// milliseconds longer. Doze fails with Conflict if the container is in use, by this client or by a process in it. It
// fails with Unsupported if the guest cannot doze.
func (c *Client) Doze(ctx context.Context) error {
	gets, ok := c.retire()
	if !ok {
		return proto.Errorf(proto.Conflict, "doze", "", "the container is in use")
	}
	if err := c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpDoze}, nil); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dozed = gets + 1 // this call counts as one; any later call has woken the guest
	return nil
}

// retire closes all connections but one, if none is in use, and returns how often a connection was taken.
func (c *Client) retire() (gets int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.live) > len(c.idle) {
		return 0, false
	}
	for len(c.idle) > 1 {
		w := c.idle[0]
		c.idle = c.idle[1:]
		delete(c.live, w)
		_ = w.Close()
	}
	return c.gets, true
}

// Dozes reports whether the guest dozes, as far as this client knows, and can be woken.
func (c *Client) Dozes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dozed > 0 && c.dozed == c.gets && len(c.idle) == 1 && c.idle[0].Alive()
}

package attack

import (
	"context"

	"berth/cmd/berth/internal/client"
)

// A tenant is somebody else who uses the same daemon.
type tenant struct {
	client *client.Client
	key    string
}

// newTenant finds a second tenant. There is one key to a daemon, so for now it is the same one.
func newTenant(_ context.Context, o Options, c *client.Client) *tenant {
	return &tenant{client: c, key: o.Key}
}

// leave takes back what newTenant made.
func (n *tenant) leave() {}

// Neighbour is the same daemon as another tenant sees it, for a victim that must not be reached. What is made with it is removed when the
// case is over.
func (t *Target) Neighbour() *Target {
	if t.neighbour == nil {
		n := *t
		n.Client, n.Key, n.neighbour, n.made, n.undo = t.tenant.client, t.tenant.key, nil, nil, nil
		t.neighbour = &n
	}
	return t.neighbour
}

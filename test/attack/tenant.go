package attack

import (
	"context"
	"errors"
	"fmt"

	"berth/client"
	"berth/proto"
)

// A tenant is somebody else at the same daemon: a second owner of keys, with one key for as long as the run lasts. It
// is made at the first need. Its key ends after a day, so that a suite that was killed leaves no key for ever.
type tenant struct {
	admin *client.Client

	own *client.Client
	key proto.NewKey
}

// client is the daemon as the tenant sees it.
func (n *tenant) client(ctx context.Context) (*client.Client, error) {
	if n.own != nil {
		return n.own, nil
	}
	key, err := n.admin.CreateKey(ctx, proto.CreateKey{Name: "berth attack: the neighbour", Owner: "attack-neighbour",
		ExpiresInSeconds: 24 * 3600})
	switch {
	case proto.CodeOf(err) == proto.PermissionDenied:
		return nil, errors.New("it takes an administrator's key, with which a second tenant can be made")
	case err != nil:
		return nil, fmt.Errorf("making a key for a second tenant: %w", err)
	}
	n.key, n.own = key, n.admin.As(key.Secret)
	return n.own, nil
}

// leave revokes the tenant's key. Without it, the key ends by itself a day later.
// The context is its own: the run's may have been cancelled.
func (n *tenant) leave() {
	if n.own == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tidyTimeout)
	defer cancel()
	_, _ = n.admin.RevokeKey(ctx, n.key.ID)
}

// Neighbour is the same daemon as another tenant sees it, for a victim that must not be reached or an attacker who
// must not reach. What is made with it is removed when the case is over. It takes an administrator's key.
func (t *Target) Neighbour(ctx context.Context) (*Target, error) {
	if t.neighbour != nil {
		return t.neighbour, nil
	}
	c, err := t.tenant.client(ctx)
	if err != nil {
		return nil, err
	}
	n := *t
	// A copy, with none of what the first one must tidy up.
	n.Client, n.Key, n.made, n.undo = c, c.Key(), nil, nil
	t.neighbour = &n
	return t.neighbour, nil
}

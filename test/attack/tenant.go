package attack

import (
	"context"
	"errors"
	"fmt"

	"berth/client"
	"berth/proto"
)

// A tenant is another owner at the same daemon, with one key for the whole run. It is created on first use. Its key
// expires after a day, in case the suite is killed.
type tenant struct {
	admin *client.Client

	own *client.Client
	key proto.NewKey
}

// client returns a client with the tenant's key.
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

// leave revokes the tenant's key. If it fails, the key expires after a day. It uses its own context, since the run's
// context may be canceled.
func (n *tenant) leave() {
	if n.own == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tidyTimeout)
	defer cancel()
	_, _ = n.admin.RevokeKey(ctx, n.key.ID)
}

// Neighbour returns the same daemon as another tenant sees it. The neighbour is a victim that must not be reached, or
// an attacker that must not reach others. What is created with it is removed at the end of the case. It needs an
// administrator's key.
func (t *Target) Neighbour(ctx context.Context) (*Target, error) {
	if t.neighbour != nil {
		return t.neighbour, nil
	}
	c, err := t.tenant.client(ctx)
	if err != nil {
		return nil, err
	}
	n := *t
	// A copy, without the cleanup of the original.
	n.Client, n.Key, n.made, n.undo = c, c.Key(), nil, nil
	t.neighbour = &n
	return t.neighbour, nil
}

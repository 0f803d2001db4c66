package native

import (
	"time"

	"berth/api"
	"berth/proto"
)

// The key store decides what the caller may create: only an admin may create keys for other owners.
func (e *edge) createKey(c *call, req proto.CreateKey) (proto.NewKey, error) {
	k, err := e.Keys.Create(proto.CallerOf(c.ctx()), req)
	if err != nil {
		return k, err
	}
	api.Note(c.ctx(), k.ID)
	// No cache may keep the secret.
	c.w.Header().Set("Cache-Control", "no-store")
	return k, nil
}

// Revoked keys are listed, too: the audit log only has their IDs.
func (e *edge) listKeys(*call) (page[proto.Key], error) { return list(e.Keys.List(), nil) }

// getKey describes a valid key. Only the list has revoked ones.
func (e *edge) getKey(c *call) (proto.KeyStatus, error) {
	id := c.id()
	if k, err := e.Keys.Get(id); err == nil && k.RevokedAt != nil {
		return proto.KeyStatus{}, proto.Errorf(proto.NotFound, "", id, "API key %s was revoked at %s; the list of all "+
			"keys still has it", id, k.RevokedAt.Format(time.RFC3339))
	}
	return e.keyStatus(id)
}

// ownKey describes the caller's key.
func (e *edge) ownKey(c *call) (proto.KeyStatus, error) {
	return e.keyStatus(proto.CallerOf(c.ctx()).KeyID)
}

func (e *edge) keyStatus(id string) (proto.KeyStatus, error) {
	k, err := e.Keys.Get(id)
	if err != nil {
		return proto.KeyStatus{}, err
	}
	use := e.Quotas.Usage(k)
	use.Sessions, use.StorageBytes = e.Sessions.KeySessions(id), e.Files.KeyUsage(id)
	return proto.KeyStatus{Key: k, Usage: use}, nil
}

func (e *edge) changeKey(c *call, req proto.ChangeKey) (proto.Key, error) {
	return e.Keys.Change(c.id(), req)
}

// It returns when no further request with the key is accepted and running ones have been told to end.
func (e *edge) revokeKey(c *call) (proto.Key, error) { return e.Keys.Revoke(c.ctx(), c.id()) }

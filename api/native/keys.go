package native

import (
	"net/http"
	"time"

	"berth/api"
	"berth/proto"
)

// The key store decides what the caller may create: only an admin may create keys for other owners.
func (e *edge) createKey(c *call) error {
	var req proto.CreateKey
	if err := c.decodeOptional(&req); err != nil {
		return err
	}
	k, err := e.Keys.Create(proto.CallerOf(c.r.Context()), req)
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), k.ID)
	// No cache may keep the secret.
	c.w.Header().Set("Cache-Control", "no-store")
	return c.json(http.StatusCreated, k)
}

// Revoked keys are listed, too: the audit log only has their IDs.
func (e *edge) listKeys(c *call) error { return list(c, e.Keys.List()) }

// getKey describes a valid key. Only the list has revoked ones.
func (e *edge) getKey(c *call) error {
	id := c.r.PathValue("id")
	if k, err := e.Keys.Get(id); err == nil && k.RevokedAt != nil {
		return proto.Errorf(proto.NotFound, "", id, "API key %s was revoked at %s; the list of all keys still has it",
			id, k.RevokedAt.Format(time.RFC3339))
	}
	return e.keyStatus(c, id)
}

// ownKey describes the caller's key.
func (e *edge) ownKey(c *call) error { return e.keyStatus(c, proto.CallerOf(c.r.Context()).KeyID) }

func (e *edge) keyStatus(c *call, id string) error {
	k, err := e.Keys.Get(id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, proto.KeyStatus{Key: k, Usage: proto.KeyUsage{
		Sessions: e.Sessions.KeySessions(id), StorageBytes: e.Files.KeyUsage(id),
		CPUSecondsToday: e.Keys.CPUSeconds(id), CPUResetsAt: proto.At(e.Keys.CPUResetsAt()),
	}})
}

func (e *edge) changeKey(c *call) error {
	var req proto.ChangeKey
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	k, err := e.Keys.Change(c.r.PathValue("id"), req)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, k)
}

// It returns when no further request with the key is accepted and running ones have been told to end.
func (e *edge) revokeKey(c *call) error {
	k, err := e.Keys.Revoke(c.r.Context(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, k)
}

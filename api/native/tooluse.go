package native

import (
	"net/http"

	"berth/api"
	"berth/proto"
	"berth/tools/tooluse"
)

// A mistake in the input of the block is a result for the model with status 200. An error means that there is no
// result for the model.
func (e *edge) useTool(c *call) error {
	var use tooluse.Use
	if err := c.decodeLoosely(&use); err != nil {
		return err
	}
	api.Note(c.r.Context(), use.Name)
	if err := c.toolKey(&use); err != nil {
		return err
	}
	s, err := e.session(c)
	if err != nil {
		return err
	}
	res, err := tooluse.Run(c.r.Context(), s, use)
	if err != nil {
		return err
	}
	c.setReplayed(res.Replayed)
	return c.json(http.StatusOK, res)
}

// The container has the defaults of the daemon and stays: the result names it, so that the next block can be sent
// there.
func (e *edge) useToolOnce(c *call) error {
	var use tooluse.Use
	if err := c.decodeLoosely(&use); err != nil {
		return err
	}
	api.Note(c.r.Context(), use.Name)
	if err := tooluse.Check(use); err != nil {
		return err // before creating a container for it
	}
	if err := c.toolKey(&use); err != nil {
		return err
	}
	// One key for the container and the command, so that a repeated request finds both.
	s, replayed, err := e.Sessions.CreateOnce(c.r.Context(), c.owner, proto.CreateContainer{
		IdempotencyKey: use.IdempotencyKey})
	if err != nil {
		return err
	}
	res, err := tooluse.Run(c.r.Context(), s, use)
	if err != nil && !replayed && c.isOrphaned(s, use.IdempotencyKey) {
		e.deleteContainerNow(c, s)
	}
	if err != nil {
		return err
	}
	c.setReplayed(res.Replayed)
	return c.json(http.StatusOK, res)
}

// toolKey reads the idempotency key for a tool that can honor it. Only the header can carry the key: a model writes
// the block, and must not decide what counts as a repetition.
func (c *call) toolKey(use *tooluse.Use) error {
	if err := c.readRetryKey(&use.IdempotencyKey); err != nil {
		return err
	}
	return checkKeyTool(use.IdempotencyKey, use.Name)
}

package native

import (
	"net/http"

	"berth/api"
	"berth/proto"
	"berth/tools/tooluse"
)

// A mistake in the block's input is a result for the model with status 200; an error here means
// that there is nothing to give the model.
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

// The container is made with the daemon's defaults and stays: the result names it, and the next
// block can be sent there.
func (e *edge) useToolOnce(c *call) error {
	var use tooluse.Use
	if err := c.decodeLoosely(&use); err != nil {
		return err
	}
	api.Note(c.r.Context(), use.Name)
	if err := tooluse.Check(use); err != nil {
		return err // before a container is made for it
	}
	if err := c.toolKey(&use); err != nil {
		return err
	}
	// One key for both the container and the command, so that sending again finds both.
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

// toolKey takes the header's idempotency key for a tool that can keep its promise.
// The key comes by the header alone: a model writes the block, and must not choose what counts as
// a repetition.
func (c *call) toolKey(use *tooluse.Use) error {
	if err := c.readRetryKey(&use.IdempotencyKey); err != nil {
		return err
	}
	return checkKeyTool(use.IdempotencyKey, use.Name)
}

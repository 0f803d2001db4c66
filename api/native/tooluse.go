package native

import (
	"net/http"

	"berth/api"
	"berth/proto"
	"berth/tools"
)

func (e *edge) useTool(c *call) error {
	var use tools.Use
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
	res, err := tools.Run(c.r.Context(), s, use)
	if err != nil {
		return err
	}
	c.replayed(res.Replayed)
	return c.json(http.StatusOK, res)
}

func (e *edge) useToolOnce(c *call) error {
	var use tools.Use
	if err := c.decodeLoosely(&use); err != nil {
		return err
	}
	api.Note(c.r.Context(), use.Name)
	if err := tools.Check(use); err != nil {
		return err // before a container is made for it
	}
	if err := c.toolKey(&use); err != nil {
		return err
	}
	s, replayed, err := e.Sessions.CreateOnce(c.r.Context(), c.owner, proto.CreateContainer{IdempotencyKey: use.IdempotencyKey})
	if err != nil {
		return err
	}
	res, err := tools.Run(c.r.Context(), s, use)
	if err != nil && !replayed {
		e.discard(c, s) // nobody knows of it
	}
	if err != nil {
		return err
	}
	c.replayed(res.Replayed)
	return c.json(http.StatusOK, res)
}

// toolKey takes the header's idempotency key for a tool that can keep its promise.
func (c *call) toolKey(use *tools.Use) error {
	if err := c.retryKey(&use.IdempotencyKey); err != nil {
		return err
	}
	return bashOnly(use.IdempotencyKey, use.Name)
}

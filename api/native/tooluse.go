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
	s, err := e.session(c)
	if err != nil {
		return err
	}
	res, err := tools.Run(c.r.Context(), s, use)
	if err != nil {
		return err
	}
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
	s, err := e.Sessions.Create(c.r.Context(), c.owner, proto.CreateContainer{})
	if err != nil {
		return err
	}
	res, err := tools.Run(c.r.Context(), s, use)
	if err != nil {
		e.discard(c, s) // nobody knows of it
		return err
	}
	return c.json(http.StatusOK, res)
}

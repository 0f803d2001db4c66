package native

import (
	"berth/api"
	"berth/api/strictjson"
	"berth/proto"
	"berth/tools/tooluse"
)

// A mistake in the input of the block is a result for the model with status 200. An error means that there is no
// result for the model.
func (e *edge) useTool(c *call) (none tooluse.Result, err error) {
	var use tooluse.Use
	if err := strictjson.DecodeBlock(c.r, &use); err != nil {
		return none, err
	}
	api.Note(c.ctx(), use.Name)
	if err := c.readToolKey(&use); err != nil {
		return none, err
	}
	s, err := e.session(c)
	if err != nil {
		return none, err
	}
	res, err := tooluse.Run(c.ctx(), s, use)
	c.setReplayed(err == nil && res.Replayed)
	return res, err
}

// A toolUseOnce is a block that may name the container to run in, as a Messages request does.
type toolUseOnce struct {
	tooluse.Use
	Container string `json:"container,omitempty"` // the ID of one to run in instead of a new one
	proto.Confinement
}

// A new container has the defaults of the daemon and stays: the result names it, so that the next block can be sent
// there.
func (e *edge) useToolOnce(c *call) (none tooluse.Result, err error) {
	var block toolUseOnce
	if err := strictjson.DecodeBlock(c.r, &block); err != nil {
		return none, err
	}
	use := block.Use
	api.Note(c.ctx(), use.Name)
	if err := tooluse.Check(use); err != nil {
		return none, err // before creating a container for it
	}
	if err := c.readToolKey(&use); err != nil {
		return none, err
	}
	if block.Container != "" {
		if err := block.WithContainer(); err != nil {
			return none, err
		}
		s, err := e.Sessions.Get(c.owner, block.Container)
		if err != nil {
			return none, err
		}
		res, err := tooluse.Run(c.ctx(), s, use)
		c.setReplayed(err == nil && res.Replayed)
		return res, err
	}
	// One key for the container and the command, so that a repeated request finds both.
	s, replayed, err := e.Sessions.CreateOnce(c.ctx(), c.owner, proto.CreateContainer{
		IdempotencyKey: use.IdempotencyKey, RuntimeClass: block.RuntimeClass, Limits: block.Limits})
	if err != nil {
		return none, err
	}
	res, err := tooluse.Run(c.ctx(), s, use)
	if err != nil && !replayed && c.isOrphaned(s, use.IdempotencyKey) {
		e.deleteContainerNow(c, s)
	}
	c.setReplayed(err == nil && res.Replayed)
	return res, err
}

// readToolKey reads the idempotency key for a tool that can honor it. Only the header can carry the key: a model
// writes the block, and must not decide what counts as a repetition.
func (c *call) readToolKey(use *tooluse.Use) error {
	err := c.readRetryKey(&use.IdempotencyKey)
	if err != nil || use.IdempotencyKey == "" || use.Name == "bash" || use.Name == "bash_code_execution" {
		return err
	}
	return proto.Invalid(keyHeader, "%s is for the bash tools; an edit that is sent again is refused by the editor "+
		"itself where it was done", keyHeader)
}

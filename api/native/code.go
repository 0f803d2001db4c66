package native

import (
	"net/http"

	"berth/api"
	"berth/code"
	"berth/proto"
)

// Without a container, the code gets one of its own, which is deleted after the answer. Code in a context is a cell.
func (e *edge) runCode(c *call) error {
	var req proto.Program
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	answer := func(res code.Outcome) error { return c.jsonNow(res) }
	if req.Context == "" {
		return e.Code.Once(c.r.Context(), c.owner, req, nil, answer)
	}
	cell, err := code.CellOf(req)
	if err != nil {
		return err
	}
	res, err := e.Code.Cell(c.r.Context(), c.owner, req.Container, req.Context, cell, nil)
	if err != nil {
		return err
	}
	return answer(res)
}

func (e *edge) runCell(c *call) error {
	var req code.Cell
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	if c.wantsEvents() {
		return e.streamCell(c, req)
	}
	res, err := e.Code.Cell(c.r.Context(), c.owner, c.r.PathValue("id"), c.r.PathValue("name"), req, nil)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, res)
}

// streamCell sends the output of a cell as server-sent events. The answer starts with the cell, so that earlier
// errors have their own status.
func (e *edge) streamCell(c *call, req code.Cell) error {
	var es *api.EventStream
	send := func(p code.Progress) error {
		if es == nil {
			es = api.NewEventStream(c.w, c.r)
		}
		return es.Send(p.Type, p)
	}
	defer func() {
		if es != nil {
			es.Close()
		}
	}()
	res, err := e.Code.Cell(c.r.Context(), c.owner, c.r.PathValue("id"), c.r.PathValue("name"), req, send)
	switch {
	case err == nil:
		return send(code.Progress{Type: proto.ProgressResult, Result: &res})
	case es == nil || es.Context().Err() != nil:
		return err
	}
	api.NoteFailure(c.r.Context(), err)
	return send(code.Progress{Type: proto.ProgressError, Error: proto.AsError(err)})
}

// What the code_executor tool answers.
type execution struct {
	// Language, exit code and time, and what the script printed, as Markdown.
	Text string `json:"text"`
}

func (e *edge) executeCode(c *call) error {
	var req code.Script
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	return e.Code.Execute(c.r.Context(), c.owner, req, func(text string, _ bool) error {
		return c.jsonNow(execution{text})
	})
}

// jsonNow answers with v before the request ends, since clients need not wait for the cleanup.
func (c *call) jsonNow(v any) error {
	if err := c.json(http.StatusOK, v); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

func (e *edge) createContext(c *call) error {
	var req code.NewContext
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	api.Note(c.r.Context(), shortened(req.Name))
	made, err := e.Code.Create(c.r.Context(), c.owner, c.r.PathValue("id"), req)
	if err != nil {
		return err
	}
	return c.json(http.StatusCreated, made)
}

func (e *edge) listContexts(c *call) error {
	all, err := e.Code.List(c.owner, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return list(c, all)
}

func (e *edge) getContext(c *call) error {
	one, err := e.Code.Get(c.owner, c.r.PathValue("id"), c.r.PathValue("name"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, one)
}

func (e *edge) deleteContext(c *call) error {
	name := c.r.PathValue("name")
	if err := e.Code.Delete(c.r.Context(), c.owner, c.r.PathValue("id"), name); err != nil {
		return err
	}
	return c.json(http.StatusOK, deletedName{name, true})
}

func (e *edge) interruptContext(c *call) error {
	now, err := e.Code.Interrupt(c.r.Context(), c.owner, c.r.PathValue("id"), c.r.PathValue("name"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, now)
}

func (e *edge) restartContext(c *call) error {
	now, err := e.Code.Restart(c.r.Context(), c.owner, c.r.PathValue("id"), c.r.PathValue("name"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, now)
}

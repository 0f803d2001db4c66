package native

import (
	"net/http"

	"berth/api"
	"berth/code"
	"berth/proto"
)

// Without a container, the code gets one of its own, which is deleted after the answer. Code in a context is a cell.
func (e *edge) runCode(c *call, req proto.Program) (any, error) {
	if req.Context == "" {
		return nil, e.Code.Once(c.ctx(), c.owner, req, nil, func(res code.Outcome) error { return c.jsonNow(res) })
	}
	cell, err := code.CellOf(req)
	if err != nil {
		return nil, err
	}
	return e.Code.Cell(c.ctx(), c.owner, req.Container, req.Context, cell, nil)
}

func (e *edge) runCell(c *call, req code.Cell) (any, error) {
	if c.wantsEvents() {
		return nil, e.streamCell(c, req)
	}
	return e.Code.Cell(c.ctx(), c.owner, c.id(), c.path("name"), req, nil)
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
	res, err := e.Code.Cell(c.ctx(), c.owner, c.id(), c.path("name"), req, send)
	switch {
	case err == nil:
		return send(code.Progress{Type: proto.ProgressResult, Result: &res})
	case es == nil || es.Context().Err() != nil:
		return err
	}
	api.NoteFailure(c.ctx(), err)
	return send(code.Progress{Type: proto.ProgressError, Error: proto.AsError(err)})
}

// What the code_executor tool answers.
type execution struct {
	// Language, exit code and time, and what the script printed, as Markdown.
	Text string `json:"text"`
	// Why the script was ended, if the text cannot say it.
	Notes []string `json:"notes,omitempty"`
}

func (e *edge) executeCode(c *call, req code.Script) (any, error) {
	return nil, e.Code.Execute(c.ctx(), c.owner, req, func(r code.Report) error {
		out := execution{Text: r.Text}
		if r.Note != "" {
			out.Notes = []string{r.Note}
		}
		return c.jsonNow(out)
	})
}

// jsonNow answers with v before the request ends, since clients need not wait for the cleanup.
func (c *call) jsonNow(v any) error {
	if err := c.json(http.StatusOK, v); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

func (e *edge) createContext(c *call, req code.NewContext) (code.Context, error) {
	api.Note(c.ctx(), api.Shortened(req.Name))
	return e.Code.Create(c.ctx(), c.owner, c.id(), req)
}

func (e *edge) listContexts(c *call) (page[code.Context], error) {
	return list(e.Code.List(c.owner, c.id()))
}

func (e *edge) getContext(c *call) (code.Context, error) {
	return e.Code.Get(c.owner, c.id(), c.path("name"))
}

func (e *edge) deleteContext(c *call) (deletedName, error) {
	return deletedName{c.path("name"), true}, e.Code.Delete(c.ctx(), c.owner, c.id(), c.path("name"))
}

func (e *edge) interruptContext(c *call) (code.Context, error) {
	return e.Code.Interrupt(c.ctx(), c.owner, c.id(), c.path("name"))
}

func (e *edge) restartContext(c *call) (code.Context, error) {
	return e.Code.Restart(c.ctx(), c.owner, c.id(), c.path("name"))
}

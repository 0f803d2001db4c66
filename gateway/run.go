package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/tools/tooluse"
)

// liveHeader asks for what commands write while they run, as events of their own in a streamed answer.
const liveHeader = "berth-live-output"

// do runs a call and gives its result. What keeps it from running is a result too: the conversation goes on.
// Its error says that the turn cannot go on for now: ctx has ended, or it is errHeld.
func (t *turn) do(ctx context.Context, c call) (object, error) {
	s, err := t.need(ctx)
	if err != nil && ctx.Err() != nil { // whoever comes again has it run
		return nil, ctx.Err()
	}
	if err != nil {
		return t.failed(c, err), nil
	}
	t.note(c.id)
	if c.name == toolCode {
		return t.code(ctx, s, c)
	}
	return t.command(ctx, s, c)
}

// command runs bash, or the editor.
func (t *turn) command(ctx context.Context, s *session.Session, c call) (object, error) {
	var started *session.Exec
	var listeners sync.WaitGroup
	res, err := tooluse.Run(ctx, s, tooluse.Use{
		Type: "server_tool_use", ID: c.id, Name: c.name, Input: c.input, IdempotencyKey: t.onceKey(c),
		Started: func(e *session.Exec) {
			started = e
			if t.live() {
				// who does not listen any more still gets the result
				listeners.Go(func() { _ = e.Follow(ctx, session.Cursor{}, t.show(c)) })
			}
		},
	})
	if err != nil && started != nil && t.q.leaving() { // it has a key, and goes on
		return nil, err
	}
	if err != nil && started != nil {
		started.Abandon(ctx)
	}
	listeners.Wait()
	if err != nil {
		return t.failed(c, err), nil
	}
	return resultBlock(c, mustJSON(res.Content)), nil
}

// onceKey is what a command is known by if its call is run again: it is not. Its place in the answer is part of it,
// since there are models that use one ID in each round.
func (t *turn) onceKey(c call) string {
	if c.name != toolBash {
		return ""
	}
	key := t.keys[c.id]
	if c.turn == thisTurn {
		key = "gateway/" + t.id + "/" + strconv.Itoa(len(t.content)) + "/" + c.id
	}
	return key[:min(len(key), proto.MaxRetryKey)]
}

// resultBlock is the block that answers a call.
func resultBlock(c call, content json.RawMessage) object {
	return object{}.with("type", c.name+resultSuffix).with("tool_use_id", c.id).with("content", content)
}

// failed is the result of a call that could not be run, or whose end nobody knows.
func (t *turn) failed(c call, err error) object {
	word, level := proto.BlockUnavailable, slog.LevelWarn // the block has no room for why: no image, say
	switch proto.CodeOf(err) {
	case proto.TooMany, proto.QuotaExceeded:
		word = proto.BlockTooMany
	case proto.InvalidArgument, proto.TooLarge:
		word, level = proto.BlockInvalidInput, slog.LevelDebug
	case proto.Canceled:
		level = slog.LevelDebug
	}
	t.g.cfg.Log.Log(context.Background(), level, "a call of a turn failed", "tool", c.name, "error", err)
	content := object{}.with("type", c.name+resultSuffix+"_error").with("error_code", word)
	if c.name == toolEditor {
		content = content.with("error_message", proto.AsError(err).Message)
	}
	return resultBlock(c, content.raw())
}

// live reports whether the client wants to see what commands write.
func (t *turn) live() bool { return t.out != nil && t.q.Header.Get(liveHeader) == "1" }

// show gives a command's output to the client.
func (t *turn) show(c call) func(proto.Event) error {
	out := t.out
	return func(ev proto.Event) error {
		if ev.Type != proto.EventStdout && ev.Type != proto.EventStderr {
			return nil
		}
		return out.shown(c, string(ev.Type), ev.Data, ev.DataBase64)
	}
}

func (s *stream) shown(c call, from, text string, bytes []byte) error {
	o := object{}.with("type", "berth_output").with("tool_use_id", c.id).with("stream", from)
	if bytes != nil {
		return s.send("berth_output", o.with("data_base64", bytes).raw())
	}
	return s.send("berth_output", o.with("text", text).raw())
}

// code runs Python.
func (t *turn) code(ctx context.Context, s *session.Session, c call) (object, error) {
	var in struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(c.input, &in) != nil || in.Code == "" {
		return t.failed(c, invalid("code", "there is no code to run")), nil
	}
	var each func(code.Progress) error
	if out := t.out; t.live() {
		each = func(p code.Progress) error {
			if p.Data == "" && p.DataBase64 == nil {
				return nil
			}
			return out.shown(c, p.Type, p.Data, p.DataBase64)
		}
	}
	if !t.q.tools.repl {
		return t.program(ctx, s, c, in.Code, each), nil
	}
	if len(t.q.tools.remote) > 0 || t.h.called(c) {
		return t.held(ctx, s, c, in.Code, each)
	}
	if err := t.g.cells.yield(s, c, nil); err != nil {
		return t.failed(c, err), nil
	}
	return t.python(ctx, s, c, code.Cell{Code: in.Code, TimeoutSeconds: cellTime.Seconds()}, each), nil
}

// python runs a piece of code in the interpreter that keeps its variables. The code may outlive the turn, so nothing
// of the request is looked at.
func (t *turn) python(ctx context.Context, s *session.Session, c call, ask code.Cell,
	each func(code.Progress) error) object {
	began := time.Now()
	ask.Language = "python"
	res, err := t.g.cfg.Code.Cell(ctx, s.Owner(), s.ID(), replName, ask, each)
	if err != nil {
		return t.failed(c, err)
	}
	t.made(ctx, s, &res, began)
	return resultBlock(c, codeResult(res))
}

// program runs Python that keeps nothing.
func (t *turn) program(ctx context.Context, s *session.Session, c call, text string, each func(code.Progress) error) (
	block object) {
	err := t.g.cfg.Code.Once(ctx, s.Owner(), code.Program{Each: each,
		Program: proto.Program{Code: text, Container: s.ID()}},
		func(res code.Outcome) error {
			block = resultBlock(c, codeResult(res))
			return nil
		})
	if err != nil {
		return t.failed(c, err)
	}
	return block
}

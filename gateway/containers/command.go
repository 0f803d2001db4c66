package containers

import (
	"context"
	"sync"

	"berth/gateway"
	"berth/proto"
	"berth/session"
	"berth/tools/tooluse"
)

// toolNames maps tools to their names in package tooluse.
var toolNames = map[gateway.Tool]string{
	gateway.Bash:   "bash_code_execution",
	gateway.Editor: "text_editor_code_execution",
}

// runTool runs a command or the editor. If the daemon is about to end, it leaves a running command to the next
// daemon, which finds the command by its idempotency key.
func (c container) runTool(ctx context.Context, r gateway.Run) (*gateway.Result, error) {
	use := tooluse.Use{Type: "server_tool_use", ID: r.ID, Name: toolNames[r.Tool], Input: r.Input}
	if r.Tool == gateway.Bash {
		use.IdempotencyKey = r.Key
	}
	var started *session.Exec
	var listeners sync.WaitGroup
	use.Started = func(e *session.Exec) {
		started = e
		if r.Output != nil {
			// an error means that the client has disconnected; the command continues
			listeners.Go(func() { _ = e.Follow(ctx, session.Cursor{}, forwardOutput(r.Output)) })
		}
	}
	res, err := tooluse.Run(ctx, c.s, use)
	if err != nil && started != nil {
		if draining(r) {
			return nil, err
		}
		started.Abandon(ctx)
	}
	listeners.Wait()
	if err != nil {
		return &gateway.Result{Err: err}, nil
	}
	return &gateway.Result{Content: res.Content}, nil
}

// forwardOutput returns a function that passes the output of a command to fn.
func forwardOutput(fn func(gateway.Output) error) func(proto.Event) error {
	return func(ev proto.Event) error {
		if ev.Type != proto.EventStdout && ev.Type != proto.EventStderr {
			return nil
		}
		return fn(gateway.Output{Stream: string(ev.Type), Text: ev.Data, Bytes: ev.DataBase64})
	}
}

// draining reports whether the daemon is about to end.
func draining(r gateway.Run) bool {
	select {
	case <-r.Draining:
		return true
	default:
		return false
	}
}

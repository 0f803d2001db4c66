package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"berth/proto"
	"berth/proto/sse"
)

// RunCode runs code and waits for its outcome. With Config.Wait, code in a container of its own and without a network
// begins anew if the daemon ends meanwhile. Its files in $OUTPUT_DIR may then be stored twice, and its CPU time counts
// twice. A connection that breaks while the daemon goes on is an error.
func (c *Client) RunCode(ctx context.Context, req proto.Program) (res proto.Outcome, err error) {
	alone := req.Container == "" && (req.Network.IsZero() || req.Network.Mode == proto.NetworkNone)
	if !alone || c.cfg.Wait == 0 {
		return post[proto.Outcome](ctx, c, at("run_code"), req)
	}
	err = c.Redo(ctx, func() error {
		_, err := c.callOnce(ctx, request{method: http.MethodPost, path: at("run_code"), body: req}, &res)
		var broken brokenError
		if errors.As(err, &broken) && !c.hasEnded(ctx) {
			return broken.err
		}
		return err
	})
	return res, err
}

// maxProgress is longer than any event of a cell, in bytes. The last event has all results.
const maxProgress = 256 << 20

// RunCell runs code in a context. each receives its output while it runs.
func (c *Client) RunCell(ctx context.Context, container, name string, req proto.Cell, each func(proto.Progress) error) (
	res proto.Outcome, err error) {
	answer, err := c.send(ctx, request{method: http.MethodPost, path: at("containers", container, "contexts", name,
		"run"), body: req, header: map[string]string{"Accept": "text/event-stream"}})
	if err != nil {
		return res, err
	}
	defer answer.Body.Close()
	events := sse.NewReader(answer.Body, sse.Options{MaxEvent: maxProgress})
	for {
		event, err := events.Next()
		if err == io.EOF {
			return res, proto.Errorf(proto.Unavailable, "", c.Host(), "the connection to %s ended before the cell did",
				c.Host())
		}
		if err != nil {
			return res, c.broken(ctx, err)
		}
		var p proto.Progress
		if err := json.Unmarshal(event.Data, &p); err != nil {
			return res, err
		}
		switch {
		case p.Error != nil:
			return res, p.Error
		case p.Result != nil:
			return *p.Result, nil
		}
		if err := each(p); err != nil {
			return res, err
		}
	}
}

// Contexts lists a container's contexts, by name.
func (c *Client) Contexts(ctx context.Context, container string) ([]proto.CodeContext, error) {
	return list[proto.CodeContext](ctx, c, at("containers", container, "contexts"), nil)
}

// InterruptContext interrupts the cell that runs in a context.
func (c *Client) InterruptContext(ctx context.Context, container, name string) error {
	return c.do(ctx, http.MethodPost, at("containers", container, "contexts", name, "interrupt"))
}

// RestartContext replaces a context's interpreter by a new one.
func (c *Client) RestartContext(ctx context.Context, container, name string) error {
	return c.do(ctx, http.MethodPost, at("containers", container, "contexts", name, "restart"))
}

// DeleteContext deletes a context and ends its interpreter.
func (c *Client) DeleteContext(ctx context.Context, container, name string) error {
	return c.do(ctx, http.MethodDelete, at("containers", container, "contexts", name))
}

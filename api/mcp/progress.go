package mcp

import (
	"context"
	"sync"
	"time"
	"unicode/utf8"

	"berth/code"
	"berth/proto"
	"berth/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of what a client is told while a tool runs. What it misses is in the result.
const (
	sayEvery = 100 * time.Millisecond // between two messages; output that comes meanwhile is told together
	sayBytes = 16 << 10               // of one message: the end of what came
	sayBeat  = 15 * time.Second       // between signs of life of a tool that prints nothing
)

// A narrator tells a client what its call prints while it runs. Progress is counted in seconds, so that it always
// grows; the message is the output.
type progressReporter struct {
	ctx    context.Context // the call's
	client *sdk.ServerSession
	token  any
	began  time.Time
	more   chan struct{} // holds one token once there is something to say

	mu      sync.Mutex // guards pending
	pending []byte
}

// newProgress is nil for a client that did not ask to be told: then nothing is followed either.
func (c *call) newProgress(ctx context.Context) *progressReporter {
	token := c.params.GetProgressToken()
	if token == nil {
		return nil
	}
	return &progressReporter{ctx: ctx, client: c.client, token: token, began: time.Now(), more: make(chan struct{}, 1)}
}

// runReporting tells the client what is heard while do runs.
func (n *progressReporter) runReporting(do func()) {
	if n == nil {
		do()
		return
	}
	done := make(chan struct{})
	var speaker sync.WaitGroup
	speaker.Go(func() { n.sendProgress(done) })
	do()
	close(done)
	speaker.Wait()
}

// sendProgress says what is heard, at once but not too often, until done.
func (n *progressReporter) sendProgress(done <-chan struct{}) {
	beat := time.NewTicker(sayBeat)
	defer beat.Stop()
	for {
		select {
		case <-n.more:
			n.notify(n.takePending())
			select {
			case <-time.After(sayEvery):
			case <-done:
			}
		case <-beat.C:
			n.notify("")
		case <-done:
			if rest := n.takePending(); rest != "" {
				n.notify(rest)
			}
			return
		}
	}
}

// addOutput takes a piece of output. It never waits for the client: what runs is not to.
func (n *progressReporter) addOutput(data string, raw []byte) {
	n.mu.Lock()
	n.pending = append(append(n.pending, data...), raw...)
	if len(n.pending) > 2*sayBytes {
		n.pending = append(n.pending[:0], n.pending[len(n.pending)-sayBytes:]...)
	}
	n.mu.Unlock()
	select {
	case n.more <- struct{}{}:
	default:
	}
}

// takePending is what there is to say, in whole characters.
func (n *progressReporter) takePending() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.pending[max(0, len(n.pending)-sayBytes):]
	for len(b) > 0 && len(b) < len(n.pending) && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	text := validText(string(b))
	n.pending = nil
	return text
}

// notify sends one message. One that cannot be sent is nobody's loss: the result has it too.
func (n *progressReporter) notify(message string) {
	_ = n.client.NotifyProgress(n.ctx, &sdk.ProgressNotificationParams{ProgressToken: n.token, Progress: time.Since(
		n.began).Seconds(), Message: message})
}

// follow passes on what a command prints, once it is given that; wait returns when it has ended.
func (n *progressReporter) follow(ctx context.Context) (follow func(*session.Exec), wait func()) {
	if n == nil {
		return func(*session.Exec) {}, func() {}
	}
	var wg sync.WaitGroup
	listen := func(ev proto.Event) error {
		if ev.Type == proto.EventStdout || ev.Type == proto.EventStderr {
			n.addOutput(ev.Data, ev.DataBase64)
		}
		return nil
	}
	// What is missed is in the result.
	return func(x *session.Exec) { wg.Go(func() { _ = x.Follow(ctx, session.Cursor{}, listen) }) }, wg.Wait
}

// progress is the same for what package code tells of code that runs; nil if nobody asks.
func (n *progressReporter) progress() func(code.Progress) error {
	if n == nil {
		return nil
	}
	return func(p code.Progress) error {
		if p.Type == string(proto.EventStdout) || p.Type == string(proto.EventStderr) {
			n.addOutput(p.Data, p.DataBase64)
		}
		return nil
	}
}

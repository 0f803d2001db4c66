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

// Bounds of progress messages. The result has what they leave out.
const (
	sayEvery = 100 * time.Millisecond // between two messages; they combine the output of that time
	sayBytes = 16 << 10               // of one message: the end of the output
	sayBeat  = 15 * time.Second       // between messages of a tool that prints nothing
)

// A progressReporter sends the output of a running call to the client. The progress value is the time in seconds,
// which always grows; the message is the output.
type progressReporter struct {
	ctx    context.Context // the call's
	client *sdk.ServerSession
	token  any
	began  time.Time
	more   chan struct{} // holds one token when there is output to send

	mu      sync.Mutex // guards pending
	pending []byte
}

// newProgress returns nil for a client that did not ask for progress; then no output is followed.
func (c *call) newProgress(ctx context.Context) *progressReporter {
	token := c.params.GetProgressToken()
	if token == nil {
		return nil
	}
	return &progressReporter{ctx: ctx, client: c.client, token: token, began: time.Now(), more: make(chan struct{}, 1)}
}

// runReporting runs do and reports output meanwhile.
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

// sendProgress sends output at once, but at most every sayEvery, until done.
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

// addOutput adds a piece of output. It never waits for the client.
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

// takePending returns the output to send, in whole characters.
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

// notify sends one message. Errors are ignored, since the result has the output, too.
func (n *progressReporter) notify(message string) {
	_ = n.client.NotifyProgress(n.ctx, &sdk.ProgressNotificationParams{ProgressToken: n.token, Progress: time.Since(
		n.began).Seconds(), Message: message})
}

// follow returns a function that reports the output of a command, and one that waits for the end of the command.
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
	// The result has what is missed.
	return func(x *session.Exec) { wg.Go(func() { _ = x.Follow(ctx, session.Cursor{}, listen) }) }, wg.Wait
}

// progress returns a function that reports the output of code; nil if the client did not ask.
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

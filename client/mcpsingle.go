package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// listenMethod is the request whose answer is a stream of notifications that its client ends.
const listenMethod = "subscriptions/listen"

// isSingle reports whether a message belongs to no session: it names its version of the protocol itself.
func (m rpcMessage) isSingle() bool { return m.Params.Meta.Version != "" && m.Method != "initialize" }

// setHeaders sets the headers that repeat fields of a message that belongs to no session.
func (m rpcMessage) setHeaders(h http.Header) {
	h.Del("Mcp-Session-Id")
	h.Set("Mcp-Protocol-Version", m.Params.Meta.Version)
	h.Set("Mcp-Method", headerValue(m.Method))
	name := m.Params.Name
	if m.Method == "resources/read" {
		name = m.Params.URI
	}
	var text string
	if json.Unmarshal(name, &text) == nil && text != "" {
		h.Set("Mcp-Name", headerValue(text))
	}
}

// headerValue encodes a text for a header: as it is, or as base64 if it has other characters than printable ASCII, or
// could be taken for such an encoding.
func headerValue(text string) string {
	plain := text == strings.TrimSpace(text) && !strings.HasPrefix(text, "=?base64?") &&
		!strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
	if plain {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

// singles are the running calls that belong to no session, by the ID of their message.
type singles struct {
	mu   sync.Mutex
	ends map[string]*context.CancelFunc
}

// add registers a call until done.
func (s *singles) add(id json.RawMessage, end context.CancelFunc) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		s.ends = map[string]*context.CancelFunc{}
	}
	key, entry := string(id), &end
	s.ends[key] = entry
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ends[key] == entry {
			delete(s.ends, key)
		}
	}
}

// cancel ends a running call, and reports whether there is one.
func (s *singles) cancel(id json.RawMessage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.ends[string(id)]
	if end != nil {
		(*end)()
	}
	return end != nil
}

// sendSingle sends a message that belongs to no session. Over HTTP, the end of the connection cancels a call; here its
// client does by a notification, after which the call sends nothing more.
func (b *Bridge) sendSingle(ctx context.Context, m rpcMessage, line []byte) {
	if !m.isCall() {
		if m.Method != "notifications/cancelled" || !b.singles.cancel(m.Params.RequestID) {
			b.reportSingle(ctx, m, b.post(ctx, m, line, b.pass))
		}
		return
	}
	if m.Method == listenMethod {
		ctx = b.streams
	}
	ctx, end := context.WithCancel(ctx)
	done := b.singles.add(m.ID, end)
	b.calls.Go(func() {
		defer end()
		defer done()
		err := b.post(ctx, m, line, func(data []byte) {
			if ctx.Err() == nil {
				b.pass(data)
			}
		})
		b.reportSingle(ctx, m, err)
	})
}

// reportSingle tells the client about a message that could not be sent, or had no answer.
func (b *Bridge) reportSingle(ctx context.Context, m rpcMessage, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	b.note(err.Error())
	if m.isCall() {
		b.write(rpcFailure(m.ID, -32603, err.Error()))
	}
}

// The delay before a stream that broke is opened again.
const (
	firstReopen = time.Second
	lastReopen  = 30 * time.Second
)

// followSession passes on what the daemon sends to the session by itself, such as changes of the list of tools, until
// the session or the client's input ends.
func (b *Bridge) followSession() {
	b.mu.Lock()
	session, tells := b.session, b.tells
	b.mu.Unlock()
	if session == "" || !tells {
		return
	}
	b.calls.Go(func() {
		for delay := firstReopen; ; delay = min(2*delay, lastReopen) {
			opened, again := b.readStream(session)
			if !again {
				return
			}
			if opened {
				delay = firstReopen
			}
			select {
			case <-time.After(delay):
			case <-b.streams.Done():
				return
			}
		}
	})
}

// readStream reads the stream of a session until it ends, and reports whether it was opened, and whether to open it
// again.
func (b *Bridge) readStream(session string) (opened, again bool) {
	if b.current() != session {
		return false, false
	}
	req, err := b.request(b.streams, http.MethodGet, nil)
	if err != nil {
		return false, false
	}
	req.Header.Set("Mcp-Session-Id", session)
	req.Header.Set("Accept", "text/event-stream")
	res, err := b.Client.http.Do(req)
	if err != nil {
		return false, b.streams.Err() == nil
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK { // the session is gone, or the daemon shuts down: the next call tells
		return false, res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusTooManyRequests
	}
	_ = eachMessage(res, b.pass)
	return true, b.streams.Err() == nil
}

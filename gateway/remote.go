package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/tools/bridge"
)

// callTime is how long code waits for the client's answer to one call.
const callTime = 270 * time.Second

// longCell is the time limit that the interpreter has for code that calls tools: what counts is spent by budget.
const longCell = 12 * time.Hour

// holderName is whose offer of tools the bridge has for a cell.
const holderName = "messages"

// callerType is what calls that code makes say of their caller; of the later version too.
const callerType = "code_execution_20260120"

// A cell is Python that may call the client's tools, in an interpreter that goes on while the client thinks of the
// answers: between the answer that asks for them and the request that brings them, it is known here alone. A request
// finds it by the calls that it brings answers to, which nothing else has the IDs of.
type cell struct {
	box, id string             // its container and its call
	calls   chan []bridge.Call // batches that the client is to be asked for
	offer   *bridge.ProviderSession
	cancel  context.CancelFunc
	done    chan struct{} // closed when result is set
	result  object
	budget  *time.Timer   // interrupts it
	turn    chan struct{} // holds one token: the right to see to it
	waiting []waiting     // that the client was asked for and has not answered; the holder's of turn
	asked   sync.Map      // IDs of all that the client was ever asked for
	left    time.Time     // when nobody saw to it any more; guarded by cells.mu

	listening sync.Mutex                // held while it is told something; guards listener
	listener  func(code.Progress) error // gets what it prints; nil: nobody does
}

// newCell is one that has not begun. Whoever makes it sees to it.
func newCell(s *session.Session, c call, cancel context.CancelFunc) *cell {
	it := &cell{box: s.ID(), id: c.id, calls: make(chan []bridge.Call), cancel: cancel, done: make(chan struct{}),
		turn: make(chan struct{}, 1)}
	it.turn <- struct{}{}
	return it
}

// limit has the code interrupted when its budget is spent. By then other code may run where it ran.
func (it *cell) limit(interrupt func()) {
	it.budget = time.AfterFunc(cellTime, func() {
		if !it.ended() {
			interrupt()
		}
	})
}

// hear has somebody get what the code prints from now on; nil: nobody.
func (it *cell) hear(listener func(code.Progress) error) {
	it.listening.Lock()
	defer it.listening.Unlock()
	it.listener = listener
}

// print gives what the code prints to whoever sees to it now.
func (it *cell) print(p code.Progress) error {
	it.listening.Lock()
	defer it.listening.Unlock()
	if it.listener != nil && it.listener(p) != nil {
		it.listener = nil // who does not listen any more still gets the result
	}
	return nil
}

// A waiting call is one that the client knows by an ID of its own.
type waiting struct {
	id   string
	call bridge.Call
}

// cells are those that somebody may come back for. Of one container, at most one has not ended.
type cells struct {
	mu    sync.Mutex // guards what follows
	known []*cell
	all   sync.WaitGroup
}

// find is the cell of a call in a container that has asked for one of these answers; nil: there is none, or not any
// more.
func (cs *cells) find(s *session.Session, c call, answers map[string]answered) *cell {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, it := range cs.known {
		for id := range answers {
			if _, ok := it.asked.Load(id); ok && it.box == s.ID() && it.id == c.id {
				return it
			}
		}
	}
	return nil
}

// see is the right to see to a cell, until leave.
func (cs *cells) see(ctx context.Context, it *cell) error {
	select {
	case it.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	it.left = time.Time{}
	return nil
}

// leave says that nobody sees to a cell for the moment.
func (cs *cells) leave(it *cell) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	it.left = time.Now()
	<-it.turn
}

// drop takes out a cell that could not begin.
func (cs *cells) drop(it *cell) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.known = slices.DeleteFunc(cs.known, func(other *cell) bool { return other == it })
}

// yield ends code of the same container that waits for a client: other code is to run in its interpreter, and would
// wait for it. Code that somebody sees to goes on, and the other is refused. next is the other's cell, if it has one:
// it is known from then on, so that of two that come at once one is refused.
func (cs *cells) yield(s *session.Session, c call, next *cell) error {
	waits, err := cs.inTheWay(s, c, next)
	for _, it := range waits {
		it.cancel()
		<-it.done
	}
	return err
}

// inTheWay takes those out that wait for a client, and puts next in.
func (cs *cells) inTheWay(s *session.Session, c call, next *cell) (waits []*cell, err error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, it := range cs.known {
		switch {
		case it.box != s.ID() || it.ended():
		case it.left.IsZero():
			return nil, proto.Errorf(proto.TooMany, "", c.id, "other code is running in the interpreter")
		default:
			waits = append(waits, it)
		}
	}
	cs.known = slices.DeleteFunc(cs.known, func(it *cell) bool { return slices.Contains(waits, it) })
	if next != nil {
		cs.known = append(cs.known, next)
	}
	return waits, nil
}

// ended reports whether it has a result.
func (it *cell) ended() bool {
	select {
	case <-it.done:
		return true
	default:
		return false
	}
}

// forget ends those that nobody has come back for in all that time; of 0, all.
func (cs *cells) forget(after time.Duration) (n int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.known = slices.DeleteFunc(cs.known, func(it *cell) bool {
		if after != 0 && (it.left.IsZero() || time.Since(it.left) < after) {
			return false
		}
		it.cancel()
		n++
		return true
	})
	return n
}

// offered are the client's tools for the bridge.
func (b *toolbox) offered() (list []bridge.Tool) {
	for _, o := range b.remote {
		list = append(list, offered(o))
	}
	return list
}

// offered is one of them.
func offered(o object) bridge.Tool {
	return bridge.Tool{Name: o.text("name"), Description: o.text("description"), InputSchema: o.get("input_schema"),
		Async: true}
}

// startCell begins one, which whoever asked for it sees to.
func (t *turn) startCell(ctx context.Context, s *session.Session, c call, text string) (*cell, error) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	it := newCell(s, c, cancel)
	if err := t.g.cells.yield(s, c, it); err != nil {
		return nil, err
	}
	var err error
	if it.offer, err = t.g.cfg.Bridge.Provide(s.Owner(), s.ID(), holderName, t.q.tools.offered(), callTime); err != nil {
		t.g.cells.drop(it)
		return nil, err
	}
	// where it is gone there is nothing to interrupt
	it.limit(func() { _, _ = t.g.cfg.Code.Interrupt(run, s.Owner(), s.ID(), replName) })
	t.g.cells.all.Go(func() { it.listen(run) })
	t.g.cells.all.Go(func() {
		defer close(it.done)
		defer it.offer.Close()
		defer it.budget.Stop()
		it.result = t.python(run, s, c, code.Cell{Code: text, TimeoutSeconds: longCell.Seconds()}, it.print)
	})
	return it, nil
}

// listen takes the calls of the code's as they come.
func (it *cell) listen(ctx context.Context) {
	for {
		batch, err := it.offer.Next(ctx)
		if err != nil {
			return
		}
		select {
		case it.calls <- batch:
		case <-it.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// await waits until the code has ended, which is its result, or calls tools, which it then waits for. When ctx ends
// first, so does the code.
func (it *cell) await(ctx context.Context) (result object, calls []waiting, err error) {
	switch {
	case it.ended(): // calls that were not answered have timed out
		return it.result, nil, nil
	case len(it.waiting) > 0:
		return nil, it.waiting, nil
	}
	it.budget.Reset(cellTime)
	select {
	case <-it.done:
		return it.result, nil, nil
	case batch := <-it.calls:
		it.budget.Reset(callTime + cellTime)
		for _, c := range batch {
			w := waiting{proto.NewID(clientPrefix), c}
			it.waiting = append(it.waiting, w)
			it.asked.Store(w.id, true)
		}
		return nil, it.waiting, nil
	case <-ctx.Done():
		it.cancel()
		<-it.done
		return it.result, nil, ctx.Err()
	}
}

// An answered call is what the client says it came to.
type answered struct {
	text   string
	failed bool
}

// feed gives the code what the client has answered. What came too late is nobody's any more.
func (it *cell) feed(answers map[string]answered) {
	var rest []waiting
	for _, w := range it.waiting {
		a, ok := answers[w.id]
		switch {
		case !ok:
			rest = append(rest, w)
		case a.failed:
			_ = it.offer.Answer(w.call.ID, nil, &bridge.Failure{Type: bridge.RuntimeError, Message: a.text})
		default:
			_ = it.offer.Answer(w.call.ID, mustJSON(a.text), nil)
		}
	}
	it.waiting = rest
}

// errHeld says that the answer ends here, for the client to do what code has called.
var errHeld = errors.New("code waits for the client")

// held sees to code that calls the client's tools: from its beginning, or with the client's answers. It leaves it
// with a result, or with the client asked for what it waits for, so that a turn never comes here twice for one piece
// of code.
func (t *turn) held(ctx context.Context, s *session.Session, c call, text string, each func(code.Progress) error) (
	object, error) {
	it, err := t.cellOf(ctx, s, c, text)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return t.failed(c, err), nil
	}
	defer t.g.cells.leave(it)
	it.hear(each)
	defer it.hear(nil)
	result, calls, err := it.await(ctx)
	if calls == nil {
		return result, err
	}
	for _, w := range calls {
		caller := object{}.with("type", callerType).with("tool_id", c.id)
		block := object{}.with("type", "tool_use").with("id", w.id).with("name", w.call.Tool).with(
			"input", w.call.Input).with("caller", caller.raw()).raw()
		t.content = append(t.content, block)
		if t.out != nil {
			_ = t.out.block(block) // who does not hear it any more comes again for the whole answer
		}
	}
	return nil, errHeld
}

// cellOf is the cell of a call, for this turn to see to. It is begun unless the code has called tools already: then
// it is there, or lost.
func (t *turn) cellOf(ctx context.Context, s *session.Session, c call, text string) (*cell, error) {
	if !t.h.called(c) {
		return t.startCell(ctx, s, c, text)
	}
	it := t.g.cells.find(s, c, t.answers)
	if it == nil {
		return nil, proto.Errorf(proto.Unavailable, "", c.id, "the code that made these calls is not running any more")
	}
	if err := t.g.cells.see(ctx, it); err != nil {
		return nil, err
	}
	it.feed(t.answers)
	return it, nil
}

// readAnswers are the client's answers to what code has called, by the calls' IDs. A request that brings them brings
// nothing else.
func (q *query) readAnswers() (map[string]answered, error) {
	if q.box.ID == "" {
		return nil, invalid("container", "container_id is required when there are pending tool uses generated by "+
			"code execution with tools.")
	}
	asked, err := q.askedFor()
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, id := range asked {
		known[id] = true
	}
	all := map[string]answered{}
	for i, raw := range q.messages[q.last+1:] {
		o, err := parseObject(raw)
		if err != nil {
			return nil, err
		}
		blocks := blocksOf(o)
		if len(blocks) == 0 {
			return nil, onlyResults(q.last + 1 + i)
		}
		for _, b := range blocks {
			text, ok := textOf(b.get("content"))
			if b.text("type") != "tool_result" || !ok {
				return nil, onlyResults(q.last + 1 + i)
			}
			id := b.text("tool_use_id")
			if !known[id] {
				return nil, invalid("messages", "messages.%d: there is no tool_use block %.80q in the message "+
					"before this tool_result", q.last+1+i, id)
			}
			all[id] = answered{text, string(b.get("is_error")) == "true"}
		}
	}
	for _, id := range asked {
		if _, ok := all[id]; !ok {
			return nil, invalid("messages", "messages.%d: the tool_use block %.80q has no tool_result; answer it, "+
				"with is_error if there is no result", q.last+1, id)
		}
	}
	return all, nil
}

// askedFor are the IDs of the calls that the last assistant message has for the client.
func (q *query) askedFor() (ids []string, err error) {
	o, err := parseObject(q.messages[q.last])
	if err != nil {
		return nil, err
	}
	for _, b := range blocksOf(o) {
		if b.text("type") == "tool_use" {
			ids = append(ids, b.text("id"))
		}
	}
	return ids, nil
}

func onlyResults(i int) error {
	return invalid("messages", "messages.%d: while code waits for tools that it has called, a user message may hold "+
		"tool_result blocks with text alone; send other content once the code has ended", i)
}

// textOf is the content of a tool_result that is text alone.
func textOf(raw json.RawMessage) (text string, ok bool) {
	if empty(raw) {
		return "", true
	}
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	list, err := parseArray(raw)
	if err != nil {
		return "", false
	}
	var all strings.Builder
	for _, b := range list {
		o, err := parseObject(b)
		if err != nil || o.text("type") != "text" {
			return "", false
		}
		all.WriteString(o.text("text"))
	}
	return all.String(), true
}

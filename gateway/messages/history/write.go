package history

import (
	"encoding/json"

	"berth/gateway/messages/exectool"
	"berth/gateway/messages/rawjson"
)

// An entry is a content block for the upstream. It is a part of the request until it is written, so that a history is
// not held twice.
type entry struct {
	raw  json.RawMessage
	form form
}

// A form is what a block becomes when it is written.
type form uint8

const (
	formAsIs       form = iota
	formCall            // a plain call
	formClientCall      // a call that does not tell its caller
	formResult          // a tool_result
)

func asIs(raw json.RawMessage) entry { return entry{raw, formAsIs} }

// toolUse is the type of a call as the upstream gets it.
var toolUse = json.RawMessage(`"tool_use"`)

// pieceSize is how many bytes a piece has at least, unless it is the last one.
const pieceSize = 32 << 10

// A writer collects JSON in pieces.
type writer struct {
	buf   []byte
	yield func([]byte) bool
	over  bool // yield wants no more
}

// Pieces returns the history as JSON in pieces. Each of them is valid until the next one. It reports whether yield
// wanted all of them.
func (h *History) Pieces(yield func(piece []byte) bool) bool {
	w := &writer{buf: make([]byte, 0, pieceSize+pieceSize/4), yield: yield}
	for i := range h.list {
		w.begin('[', i)
		w.message(&h.list[i])
		if reply := h.list[i].reply; reply != nil {
			w.begin('[', 1)
			w.message(reply)
		}
		if w.over {
			return false
		}
	}
	w.buf = append(w.buf, ']')
	w.flush()
	return !w.over
}

// begin writes what stands before an element: the opening bracket, or a comma.
func (w *writer) begin(bracket byte, i int) {
	if i > 0 {
		bracket = ','
	}
	w.buf = append(w.buf, bracket)
}

// raw writes a value. It does not copy a long one.
func (w *writer) raw(value []byte) {
	if len(value) < pieceSize {
		w.buf = append(w.buf, value...)
	} else {
		w.flush()
		w.over = w.over || !w.yield(value)
	}
	if len(w.buf) >= pieceSize {
		w.flush()
	}
}

func (w *writer) flush() {
	w.over = w.over || len(w.buf) > 0 && !w.yield(w.buf)
	w.buf = w.buf[:0]
}

func (w *writer) message(m *message) {
	switch {
	case !m.built:
		w.raw(m.sent.Raw)
		return
	case m.sent == nil:
		w.buf = append(rawjson.AppendText(append(w.buf, `{"role":`...), m.role), `,"content":`...)
		w.content(m)
	default: // with all other members that the client has sent
		n, hasContent := 0, false
		for name, value := range rawjson.Members(m.sent.Raw) {
			w.begin('{', n)
			w.buf = append(append(w.buf, name...), ':')
			if n++; !rawjson.IsText(name, "content") {
				w.raw(value)
				continue
			}
			w.content(m)
			hasContent = true
		}
		if !hasContent {
			w.begin('{', n)
			w.buf = append(w.buf, `"content":`...)
			w.content(m)
		}
	}
	w.buf = append(w.buf, '}')
}

func (w *writer) content(m *message) {
	if len(m.results)+len(m.content) == 0 {
		w.buf = append(w.buf, '[')
	}
	for i, e := range m.results {
		w.begin('[', i)
		w.entry(e)
	}
	for i, e := range m.content {
		w.begin('[', len(m.results)+i)
		w.entry(e)
	}
	w.buf = append(w.buf, ']')
}

func (w *writer) entry(e entry) {
	switch e.form {
	case formAsIs:
		w.raw(e.raw)
		return
	case formCall:
		id := rawjson.Marshal(exectool.UpstreamID(rawjson.Text(rawjson.Member(e.raw, "id"))))
		w.buf = rawjson.AppendRewrite(w.buf, e.raw, "caller", rawjson.Change{Name: "type", Value: toolUse},
			rawjson.Change{Name: "id", Value: id})
	case formClientCall:
		w.buf = rawjson.AppendRewrite(w.buf, e.raw, "caller")
	case formResult:
		w.buf = appendResult(w.buf, e.raw)
	}
	w.raw(nil) // sends what has collected
}

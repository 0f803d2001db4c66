package messages

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"berth/gateway/messages/history"
	"berth/gateway/messages/rawjson"
)

// A callLog remembers calls of server tools that clients have got without a result. A later request may bring them
// back. Its messages do not show whether the answer deferred the call or ended too early, and whether the client has
// read the input to its end.
type callLog struct {
	mu    sync.Mutex // guards the fields below
	calls map[callKey][]loggedCall
	order []callKey // of all calls, oldest first
	bytes int       // of all inputs
}

// A callKey identifies a call. Some upstreams give the same IDs in each conversation, so that one key may have several
// calls.
type callKey struct{ owner, id string }

// A loggedCall is a call that a client has got without a result.
type loggedCall struct {
	deferred bool // it may be run
	input    json.RawMessage
}

// Limits of a callLog: the number of calls, and the bytes of their inputs.
const (
	maxLogged      = 10_000
	maxLoggedBytes = 32 << 20
)

// add remembers a call. It was deferred, or it must not be run.
func (l *callLog) add(owner, id string, call loggedCall) {
	call.input = bytes.Clone(call.input) // it is part of a whole answer
	l.mu.Lock()
	defer l.mu.Unlock()
	key := callKey{owner, id}
	if l.calls == nil {
		l.calls = map[callKey][]loggedCall{}
	}
	l.calls[key], l.order, l.bytes = append(l.calls[key], call), append(l.order, key), l.bytes+len(call.input)
	for len(l.order) > maxLogged || l.bytes > maxLoggedBytes {
		oldest := l.order[0]
		list := l.calls[oldest]
		l.bytes -= len(list[0].input)
		if l.calls[oldest] = list[1:]; len(list) == 1 {
			delete(l.calls, oldest)
		}
		l.order = l.order[1:]
	}
}

// mayRun reports whether a call that a request brings back may be run. A call of another server may. Of several calls
// with its ID, the call is the one with its input.
func (l *callLog) mayRun(owner string, c history.Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	may := true
	for _, known := range l.calls[callKey{owner, c.ID}] {
		if known.deferred && sameInput(c.Input, known.input) {
			return true
		}
		may = may && known.deferred && !isCut(c.Input, known.input)
	}
	return may
}

// sameInput reports whether two inputs have the same value.
func sameInput(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// isCut reports whether an input is the beginning of another one, as a client has it that stopped reading: members are
// missing, and texts end too early.
func isCut(input, whole json.RawMessage) bool {
	a, errA := rawjson.Parse(input)
	b, errB := rawjson.Parse(whole)
	if errA != nil || errB != nil {
		return errB == nil
	}
	cut := false
	for _, m := range b {
		var x, y string
		switch {
		case string(m.Value) == "null": // some clients leave it out
		case !a.Has(m.Name):
			cut = true
		case json.Unmarshal(m.Value, &y) != nil || json.Unmarshal(a.Get(m.Name), &x) != nil || x == y:
		case !strings.HasPrefix(y, x):
			return false // somebody has changed it
		default:
			cut = true
		}
	}
	return cut
}

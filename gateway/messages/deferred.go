package messages

import (
	"bytes"
	"encoding/json"
	"slices"
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
	calls map[callKey]json.RawMessage
	order []callKey // oldest first
	bytes int       // of all inputs
}

// A callKey identifies a call.
type callKey struct{ owner, id string }

// Limits of a callLog: the number of calls, and the bytes of their inputs.
const (
	maxLogged      = 10_000
	maxLoggedBytes = 32 << 20
)

// add remembers a call. input is nil if the call must not be run: it was not deferred.
func (l *callLog) add(owner, id string, input json.RawMessage) {
	input = bytes.Clone(input) // it is part of a whole answer
	l.mu.Lock()
	defer l.mu.Unlock()
	key := callKey{owner, id}
	if l.calls == nil {
		l.calls = map[callKey]json.RawMessage{}
	}
	if old, ok := l.calls[key]; ok {
		l.bytes -= len(old)
		l.order = slices.DeleteFunc(l.order, func(k callKey) bool { return k == key })
	}
	l.calls[key], l.order, l.bytes = input, append(l.order, key), l.bytes+len(input)
	for len(l.order) > maxLogged || l.bytes > maxLoggedBytes {
		l.bytes -= len(l.calls[l.order[0]])
		delete(l.calls, l.order[0])
		l.order = l.order[1:]
	}
}

// mayRun reports whether a call that a request brings back may be run. A call of another server may.
func (l *callLog) mayRun(owner string, c history.Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	input, known := l.calls[callKey{owner, c.ID}]
	return !known || input != nil && !isCut(c.Input, input)
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

package messages

import (
	"encoding/json"
	"strconv"
)

// addUsage sums the usage of two rounds. It adds numbers, sums objects member by member, and takes other values from
// b.
func addUsage(a, b json.RawMessage) json.RawMessage { return fold(a, b, addNumbers) }

// updateUsage merges two usage reports of one streamed round. The later value of a member wins if it is not null.
func updateUsage(a, b json.RawMessage) json.RawMessage {
	return fold(a, b, func(_, b json.RawMessage) json.RawMessage { return b })
}

func fold(a, b json.RawMessage, numbers func(a, b json.RawMessage) json.RawMessage) json.RawMessage {
	switch {
	case isEmpty(a):
		return b
	case isEmpty(b):
		return a
	}
	x, errA := parseObject(a)
	y, errB := parseObject(b)
	if errA != nil || errB != nil {
		return numbers(a, b)
	}
	for _, m := range y {
		x = x.with(m.name, fold(x.get(m.name), m.value, numbers))
	}
	return x.raw()
}

func isEmpty(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// addNumbers returns the sum, or b if one of the values is not a number.
func addNumbers(a, b json.RawMessage) json.RawMessage {
	if n, err := strconv.ParseInt(string(a), 10, 64); err == nil {
		if m, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			return mustJSON(n + m)
		}
	}
	var x, y float64
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return b
	}
	return mustJSON(x + y)
}

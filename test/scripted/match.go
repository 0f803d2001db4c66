package scripted

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// differ returns how and where a value does not match what is wanted, or "" if it matches.
func differ(want, got any, at string) string {
	switch want := want.(type) {
	case map[string]any:
		if op, arg, ok := operator(want); ok {
			return differOp(op, arg, got, at)
		}
		return differObject(want, got, at)
	case []any:
		return differList(want, got, at)
	case json.Number:
		if n, ok := got.(json.Number); ok && sameNumber(want, n) {
			return ""
		}
	default: // nil, bool, string
		if want == got {
			return ""
		}
	}
	return unlike(want, got, at)
}

func differObject(want map[string]any, got any, at string) string {
	have, ok := got.(map[string]any)
	if !ok {
		return unlike(want, got, at)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if d := differ(want[name], have[name], at+"/"+name); d != "" {
			return d
		}
	}
	return ""
}

func differList(want []any, got any, at string) string {
	have, ok := got.([]any)
	if !ok || len(have) != len(want) {
		return unlike(want, got, at)
	}
	for i := range want {
		if d := differ(want[i], have[i], at+"/"+strconv.Itoa(i)); d != "" {
			return d
		}
	}
	return ""
}

func sameNumber(a, b json.Number) bool {
	x, errX := a.Float64()
	y, errY := b.Float64()
	return a == b || errX == nil && errY == nil && x == y
}

// operators are the members that make an object an operator.
var operators = []string{"$contains", "$match", "$any", "$length", "$has", "$not"}

func operator(want map[string]any) (op string, arg any, ok bool) {
	for op, arg := range want {
		if len(want) == 1 && strings.HasPrefix(op, "$") {
			return op, arg, true
		}
	}
	return "", nil, false
}

// differOp is differ for an operator. checkWanted has checked its argument.
func differOp(op string, arg, got any, at string) string {
	fits := false
	text, isText := got.(string)
	switch op {
	case "$contains":
		fits = isText && strings.Contains(text, arg.(string))
	case "$match":
		fits = isText && regexp.MustCompile(arg.(string)).MatchString(text)
	case "$any":
		fits = (got != nil) == arg.(bool)
	case "$length":
		n, _ := arg.(json.Number).Int64()
		fits = int64(lengthOf(got)) == n
	case "$has":
		list, _ := got.([]any)
		fits = slices.ContainsFunc(list, func(v any) bool { return differ(arg, v, at) == "" })
	case "$not":
		fits = differ(arg, got, at) != ""
	}
	if fits {
		return ""
	}
	return unlike(map[string]any{op: arg}, got, at)
}

func lengthOf(v any) int {
	switch v := v.(type) {
	case []any:
		return len(v)
	case string:
		return utf8.RuneCountInString(v)
	}
	return -1
}

// checkWanted returns an error for an operator that differOp could not evaluate.
func checkWanted(want any) error {
	switch want := want.(type) {
	case map[string]any:
		if op, arg, ok := operator(want); ok {
			return checkOperator(op, arg)
		}
		for name, v := range want {
			if err := checkWanted(v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	case []any:
		for i, v := range want {
			if err := checkWanted(v); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
	}
	return nil
}

func checkOperator(op string, arg any) (err error) {
	ok := false
	switch op {
	case "$contains":
		_, ok = arg.(string)
	case "$match":
		text, isText := arg.(string)
		if ok = isText; ok {
			_, err = regexp.Compile(text)
		}
	case "$any":
		_, ok = arg.(bool)
	case "$length":
		n, isNumber := arg.(json.Number)
		if ok = isNumber; ok {
			_, err = n.Int64()
		}
	case "$has", "$not":
		return checkWanted(arg)
	default:
		return fmt.Errorf("%s is not known; there are %s", op, strings.Join(operators, ", "))
	}
	if !ok {
		return fmt.Errorf("%s cannot be %s", op, brief(arg))
	}
	return err
}

func unlike(want, got any, at string) string {
	return fmt.Sprintf("%s is %s; expected %s", at, brief(got), brief(want))
}

// longestShown limits the bytes of a value that a message repeats.
const longestShown = 400

func brief(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > longestShown {
		return strings.ToValidUTF8(string(text[:longestShown]), "") + "…"
	}
	return string(text)
}

// at returns the value at a JSON pointer. A negative number counts from the end of a list. ok is false if there is no
// such value.
func at(v any, pointer string) (got any, ok bool) {
	if pointer == "" {
		return v, true
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch c := v.(type) {
		case map[string]any:
			if v, ok = c[token]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if i < 0 {
				i += len(c)
			}
			if err != nil || i < 0 || i >= len(c) {
				return nil, false
			}
			v = c[i]
		default:
			return nil, false
		}
	}
	return v, true
}

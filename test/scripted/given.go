package scripted

import (
	"fmt"
	"regexp"
	"strings"
)

// fill returns a copy of an answer's value in which $from and $join are replaced by values from the request.
func fill(v, request any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["$from"]; ok {
			return take(v, request)
		}
		if parts, ok := v["$join"].([]any); ok {
			return join(parts, request)
		}
		out := make(map[string]any, len(v))
		for name, member := range v {
			filled, err := fill(member, request)
			if err != nil {
				return nil, err
			}
			out[name] = filled
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			filled, err := fill(element, request)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	}
	return v, nil
}

// take evaluates {"$from": …}.
func take(v map[string]any, request any) (any, error) {
	from := v["$from"].(string)
	got, ok := at(request, from)
	if !ok {
		return nil, fmt.Errorf("the answer takes a value from %s, where the request has none", from)
	}
	expr, ok := v["match"].(string)
	if !ok {
		return got, nil
	}
	groups := regexp.MustCompile(expr).FindStringSubmatch(textOf(got))
	if groups == nil {
		return nil, fmt.Errorf("the answer takes what fits %s from %s, which is %s", expr, from, brief(got))
	}
	return groups[min(1, len(groups)-1)], nil
}

func join(parts []any, request any) (any, error) {
	var b strings.Builder
	for _, part := range parts {
		v, err := fill(part, request)
		if err != nil {
			return nil, err
		}
		b.WriteString(textOf(v))
	}
	return b.String(), nil
}

// textOf returns a string unchanged, and any other value as JSON.
func textOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return string(encode(v))
}

// checkGiven returns an error for a value that fill could not evaluate.
func checkGiven(v any) error {
	switch v := v.(type) {
	case map[string]any:
		if from, ok := v["$from"]; ok {
			return checkFrom(v, from)
		}
		for _, member := range v {
			if err := checkGiven(member); err != nil {
				return err
			}
		}
	case []any:
		for _, element := range v {
			if err := checkGiven(element); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkFrom(v map[string]any, from any) error {
	pointer, ok := from.(string)
	if !ok || pointer != "" && !strings.HasPrefix(pointer, "/") {
		return fmt.Errorf("$from is %s; it must be a JSON pointer", brief(from))
	}
	if expr, ok := v["match"].(string); ok {
		_, err := regexp.Compile(expr)
		return err
	}
	return nil
}

package upstream

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// cutModel removes a routing prefix, such as local/, from the model in a request body. It keeps all other bytes.
func (u *Upstream) cutModel(body []byte) []byte {
	if !slices.ContainsFunc(u.cfg.Prefixes, isRoutingPrefix) {
		return body
	}
	start, end := modelAt(body)
	var model string
	if start == end || json.Unmarshal(body[start:end], &model) != nil {
		return body // the upstream reports the error
	}
	text, _ := json.Marshal(u.trimModel(model)) // cannot fail: model is a string
	return slices.Concat(body[:start], text, body[end:])
}

// isRoutingPrefix reports whether a prefix only selects the upstream and is not part of the model's name.
func isRoutingPrefix(prefix string) bool { return strings.HasSuffix(prefix, "/") }

// trimModel returns the name that the upstream has for a model.
func (u *Upstream) trimModel(model string) string {
	longest := ""
	for _, p := range u.cfg.Prefixes {
		if isRoutingPrefix(p) && strings.HasPrefix(model, p) && len(p) > len(longest) {
			longest = p
		}
	}
	return model[len(longest):]
}

// modelAt returns the position of the value of the top-level member model. start equals end if there is none.
func modelAt(body []byte) (start, end int) {
	dec := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(
		true))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return 0, 0
	}
	for {
		name, err := dec.ReadToken()
		if err != nil || name.Kind() != '"' {
			return 0, 0
		}
		if name.String() != "model" {
			if dec.SkipValue() != nil {
				return 0, 0
			}
			continue
		}
		value, err := dec.ReadValue()
		if err != nil {
			return 0, 0
		}
		end = int(dec.InputOffset())
		return end - len(value), end
	}
}

package upstream

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// cutModel takes off a prefix that only names the upstream, such as local/, from a body's model. All other bytes stay
// as they are.
func (u *Upstream) cutModel(body []byte) []byte {
	if !slices.ContainsFunc(u.cfg.Prefixes, isRoutingPrefix) {
		return body
	}
	start, end := modelAt(body)
	var model string
	if start == end || json.Unmarshal(body[start:end], &model) != nil {
		return body // the upstream says what is wrong with it
	}
	text, _ := json.Marshal(u.trimModel(model)) // strings always can be written
	return slices.Concat(body[:start], text, body[end:])
}

// isRoutingPrefix reports whether a prefix names where a model is, and is no part of the model's name.
func isRoutingPrefix(prefix string) bool { return strings.HasSuffix(prefix, "/") }

// trimModel is a model as the upstream knows it.
func (u *Upstream) trimModel(model string) string {
	longest := ""
	for _, p := range u.cfg.Prefixes {
		if isRoutingPrefix(p) && strings.HasPrefix(model, p) && len(p) > len(longest) {
			longest = p
		}
	}
	return model[len(longest):]
}

// modelAt is where a body has the value of its top member model; two equal places if nowhere.
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

package interpreter

import (
	"encoding/json"
	"maps"
	"strings"

	"berth/proto"
)

// fields are where clients find results, by media type.
var fields = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "text/latex": "latex",
	"image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf",
	"application/json": "json", "application/javascript": "javascript", "application/vnd.berth.chart+json": "chart",
}

// tableType is the media type of tables.
const tableType = "application/vnd.berth.table+json"

// resultOf returns what code showed as an event. What has no field of its own is extra.
func resultOf(d proto.Display) map[string]any {
	out, extra := map[string]any{"type": "result", "is_main_result": d.Main}, proto.Bundle{}
	rest := maps.Clone(d.Rich)
	if table, ok := rest[tableType]; ok {
		delete(rest, tableType)
		if columns := columnsOf(table); columns != nil {
			out["data"] = columns
		}
	}
	for media, value := range rest {
		if name := fields[media]; name != "" {
			out[name] = value
		} else {
			extra[media] = value
		}
	}
	if text, ok := rest["text/plain"]; ok {
		var plain string
		if json.Unmarshal(text, &plain) == nil {
			out["text"] = unquoted(plain)
		}
	}
	out["extra"] = extra
	return out
}

// unquoted removes one pair of quotes around a text, as Python shows one.
func unquoted(text string) string {
	for _, quote := range []string{"'", `"`} {
		if len(text) > 1 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			return text[1 : len(text)-1]
		}
	}
	return text
}

// columnsOf returns a table by its columns, or nil if it is none.
func columnsOf(table json.RawMessage) map[string][]json.RawMessage {
	var t struct {
		Columns []struct{ Name string }
		Rows    [][]json.RawMessage
	}
	if json.Unmarshal(table, &t) != nil {
		return nil
	}
	out := map[string][]json.RawMessage{}
	for i, c := range t.Columns {
		values := make([]json.RawMessage, 0, len(t.Rows))
		for _, row := range t.Rows {
			if i < len(row) {
				values = append(values, row[i])
			}
		}
		out[c.Name] = values
	}
	return out
}

package proto

import (
	"bytes"
	"encoding/json"
	"slices"
)

// ReservedTool is the name by which code finds all tools; none may have it.
const ReservedTool = "tools"

// What stands before a call of a tool.
const (
	ApprovalAllow  = "allow"  // nothing
	ApprovalReview = "review" // each call waits until somebody approves that one call
)

// Kinds of whoever answers calls of tools.
const (
	ProviderClient = "client" // a client of the API, on a websocket of the container's
	ProviderHTTP   = "http"   // a server that each call is posted to
	ProviderMCP    = "mcp"    // a server that speaks the Model Context Protocol
)

// CodeTools are the host's tools that code in a container may call. None by default, and only those that are listed.
type CodeTools struct {
	Allow []AllowedTool `json:"allow,omitempty"` // at most 128; none or empty: no tool
	// of one command, or one context; default 1000, 1 to 100,000
	MaxCalls int64 `json:"max_calls,omitempty"`
	// of one call, without its wait for approval; default 60, above 0 to 3600
	TimeoutSeconds float64      `json:"timeout_seconds,omitempty"`
	Provider       ToolProvider `json:"provider,omitzero"` // who answers; default a client of the API
}

// IsZero reports whether no tool was asked for.
func (c CodeTools) IsZero() bool { return len(c.Allow) == 0 }

// Clone is a copy that shares nothing.
func (c CodeTools) Clone() CodeTools {
	c.Allow, c.Provider.Tools = slices.Clone(c.Allow), slices.Clone(c.Provider.Tools)
	return c
}

// An AllowedTool is one tool that code may call, by its one exact name. A request may give its name alone.
type AllowedTool struct {
	Name     string `json:"name"`
	Approval string `json:"approval,omitempty"` // ApprovalAllow (default) or ApprovalReview
}

// SetShort is AllowedTool where a name alone stands for it.
func (t *AllowedTool) SetShort(name string) { *t = AllowedTool{Name: name} }

// UnmarshalJSON is json.Unmarshaler's: a name alone may stand for the object.
func (t *AllowedTool) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*t = AllowedTool{}
		return json.Unmarshal(data, &t.Name)
	}
	type plain AllowedTool
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode((*plain)(t))
}

// A ToolProvider is who answers calls of tools. What is in Headers, and the secret, is sealed on disk and never told
// again.
type ToolProvider struct {
	Type    string            `json:"type,omitempty"`    // ProviderClient (default), ProviderHTTP or ProviderMCP
	URL     string            `json:"url,omitempty"`     // of a server
	Headers map[string]string `json:"headers,omitempty"` // for each request to it
	// of ProviderHTTP: what its requests are signed with, of 16 bytes at least
	Secret string     `json:"secret,omitempty"`
	Tools  []ToolSpec `json:"tools,omitempty"` // of ProviderHTTP: what it answers
}

// A ToolSpec describes a tool to whoever calls it.
type ToolSpec struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// JSON Schema of the input, which is an object; default any object
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"` // of the result; default anything
}

// An AuditCall is what the audit log tells of a call of a tool.
type AuditCall struct {
	ID      string  `json:"id,omitempty"` // empty where it was refused before it had one
	Tool    string  `json:"tool"`
	Error   string  `json:"error,omitempty"` // the type of the error that the code got
	Sent    int64   `json:"input_bytes"`
	Got     int64   `json:"result_bytes"`
	Seconds float64 `json:"seconds"`
}

package proto

import (
	"bytes"
	"encoding/json"
	"slices"
)

// ReservedTool is the name by which code finds all tools; none may have it.
const ReservedTool = "tools"

// MaxToolName bounds the name of a tool that code calls, in bytes.
const MaxToolName = 128

// What stands before a call of a tool.
const (
	ApprovalAllow  = "allow"  // nothing
	ApprovalReview = "review" // each call waits until somebody approves that one call
)

// Kinds of providers, which answer calls of tools.
const (
	ProviderClient = "client" // a client of the API, on a websocket of the container's
	ProviderHTTP   = "http"   // a server that each call is posted to
	ProviderMCP    = "mcp"    // a server that speaks the Model Context Protocol
)

// CodeTools are the tools of the host that code in a container may call. Only listed tools can be called.
type CodeTools struct {
	// Exact names of tools, or objects with name and approval; at most 128. The name "tools" is reserved.
	Allow []AllowedTool `json:"allow,omitempty" schema:"maxItems=128 callables"`
	// Maximum number of calls of one command or one context, 1 to 100,000; 0 is the default, 1000.
	MaxCalls int64 `json:"max_calls,omitempty" schema:"min=0 max=100000"`
	// Time limit of one call, without its wait for approval, up to 3600; 0 is the default, 60.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" schema:"min=0 max=3600"`
	// Who answers calls; default a client of the API.
	Provider ToolProvider `json:"provider,omitzero"`
}

// IsZero reports whether no tool was asked for.
func (c CodeTools) IsZero() bool { return len(c.Allow) == 0 }

// Clone is a copy that shares nothing.
func (c CodeTools) Clone() CodeTools {
	c.Allow, c.Provider.Tools = slices.Clone(c.Allow), slices.Clone(c.Provider.Tools)
	return c
}

// An AllowedTool is one tool that code may call. In a request, its name may stand in its place.
type AllowedTool struct {
	Name string `json:"name" schema:"callable"`
	// allow (default), or review: each call waits until a person approves that call.
	Approval string `json:"approval,omitempty" schema:"enum=|allow|review"`
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

// A ToolProvider answers calls of tools. The values of headers and the secret are sealed on disk and never returned.
type ToolProvider struct {
	// client (default): a client of the API on the websocket /v1/containers/{id}/tools. http: the daemon posts each
	// call to url, signed. mcp: the server at url speaks the Model Context Protocol over streamable HTTP.
	Type string `json:"type,omitempty" schema:"enum=|client|http|mcp"`
	// Address of the server. The operator of the daemon allows servers with --tools-callback.
	URL string `json:"url,omitempty" schema:"maxLength=2048"`
	// Sent with each request to the server, such as Authorization.
	Headers map[string]string `json:"headers,omitempty" schema:"maxProperties=32"`
	// For http, at least 16 bytes. Requests have the headers Berth-Timestamp and Berth-Signature, which is "sha256="
	// and the hex HMAC-SHA-256 of the timestamp, a dot and the body.
	Secret string `json:"secret,omitempty"`
	// For http: the tools that the server answers.
	Tools []ToolSpec `json:"tools,omitempty" schema:"maxItems=128"`
}

// A ToolSpec describes a tool.
type ToolSpec struct {
	Name        string `json:"name" schema:"callable"`
	Description string `json:"description,omitempty" schema:"maxLength=16384"`
	// JSON Schema, draft 2020-12, of the input, which is an object; default any object.
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
	// JSON Schema of the result; default anything.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
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

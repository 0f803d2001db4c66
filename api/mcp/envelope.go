package mcp

import (
	"encoding/json"
	"net/http"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// An envelope is what the edge reads of a message before the SDK does. Fields of other types count as missing; the SDK
// refuses them.
type envelope struct {
	ID     json.RawMessage `json:"id"` // nil: a notification
	Method string          `json:"method"`
	Params struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// envelopeOf reads a body. One that is no message gives an empty envelope.
func envelopeOf(body []byte) (m envelope) {
	_ = json.Unmarshal(body, &m) // the SDK refuses what is no message
	return m
}

// id returns the ID of the message, or null.
func (m envelope) id() json.RawMessage {
	if m.ID == nil {
		return noID
	}
	return m.ID
}

// firstSingle is the first version of the protocol without sessions. Versions are dates.
const firstSingle = "2026-07-28"

// versions are the versions that are served, the newest first.
var versions = sdk.SupportedProtocolVersions()

// versionHeader names the version of the protocol that a request follows.
const versionHeader = "Mcp-Protocol-Version"

// isSingle reports whether a message follows a version of the protocol without sessions, or an unknown one. Such a
// message names its version itself.
func (m envelope) isSingle(r *http.Request) bool {
	if r.Method != http.MethodPost || m.Method == "" {
		return false
	}
	if v := m.Params.Meta.Version; v != "" {
		return v >= firstSingle || !slices.Contains(versions, v)
	}
	return m.Method != "initialize" && r.Header.Get(versionHeader) >= firstSingle && r.Header.Get(sessionHeader) == ""
}

package exectool

import (
	"encoding/hex"
	"regexp"
	"strings"
)

// Prefixes of call IDs. serverPrefix begins the IDs of server tool calls, as clients see them. clientPrefix begins
// the IDs of client tool calls, as upstreams make them.
const (
	serverPrefix = "srvtoolu_"
	ClientPrefix = "toolu_"
	// hexPrefix follows serverPrefix if an upstream's ID has another form. The rest is that ID in hex.
	hexPrefix = "0x"
)

// word matches the characters that are valid in IDs of server tools.
var word = regexp.MustCompile(`^[0-9A-Za-z_]+$`)

// serverID returns the client's ID of a call for the upstream's ID. upstreamID reverses it, so no mapping is stored.
func serverID(id string) string {
	if rest, ok := strings.CutPrefix(id, ClientPrefix); ok && word.MatchString(rest) &&
		!strings.HasPrefix(rest, hexPrefix) {
		return serverPrefix + rest
	}
	return serverPrefix + hexPrefix + hex.EncodeToString([]byte(id))
}

// UpstreamID returns the upstream's ID of a call for the client's ID. It derives an ID if the conversation came from
// another server.
func UpstreamID(id string) string {
	rest, ok := strings.CutPrefix(id, serverPrefix)
	if !ok {
		return id
	}
	if digits, ok := strings.CutPrefix(rest, hexPrefix); ok {
		if own, err := hex.DecodeString(digits); err == nil && len(own) > 0 {
			return string(own)
		}
	}
	return ClientPrefix + rest
}

package gateway

import (
	"encoding/hex"
	"strings"
)

// Prefixes of the IDs of calls: of the server's tools, as clients see them, and of the client's, as upstreams make
// them.
const (
	serverPrefix = "srvtoolu_"
	clientPrefix = "toolu_"
	// hexPrefix begins, behind serverPrefix, the ID of an upstream that writes its own in another way, in hex.
	hexPrefix = "0x"
)

// serverID is an upstream's ID as clients see it. upstreamID takes it back: nobody has to remember the pair.
func serverID(id string) string {
	if rest, ok := strings.CutPrefix(id, clientPrefix); ok && plainID(rest) && !strings.HasPrefix(rest, hexPrefix) {
		return serverPrefix + rest
	}
	return serverPrefix + hexPrefix + hex.EncodeToString([]byte(id))
}

// upstreamID is the ID that serverID was given. One that it never made is of a conversation with another server, and
// keeps its own name.
func upstreamID(id string) string {
	rest, ok := strings.CutPrefix(id, serverPrefix)
	if !ok {
		return id
	}
	if digits, ok := strings.CutPrefix(rest, hexPrefix); ok {
		if own, err := hex.DecodeString(digits); err == nil && len(own) > 0 {
			return string(own)
		}
	}
	return clientPrefix + rest
}

// plainID reports whether s has only what the IDs of server tools may have.
func plainID(s string) bool {
	for _, c := range []byte(s) {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}

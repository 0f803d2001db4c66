package messages

import (
	"encoding/hex"
	"strings"
)

// Prefixes of the IDs of calls: of the server's tools as clients see them, and of the client's tools as upstreams make
// them.
const (
	serverPrefix = "srvtoolu_"
	clientPrefix = "toolu_"
	// hexPrefix follows serverPrefix where an upstream's ID has another form: the rest is that ID in hex.
	hexPrefix = "0x"
)

// serverID is an upstream's ID as clients see it. upstreamID reverses it, so that no pair has to be remembered.
func serverID(id string) string {
	if rest, ok := strings.CutPrefix(id, clientPrefix); ok && isWord(rest) && !strings.HasPrefix(rest, hexPrefix) {
		return serverPrefix + rest
	}
	return serverPrefix + hexPrefix + hex.EncodeToString([]byte(id))
}

// upstreamID is the ID that serverID was given. Another ID is from a conversation with another server; upstreamID
// derives one from it.
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

// isWord reports whether s is not empty and has only characters that IDs of server tools may have.
func isWord(s string) bool {
	for _, c := range []byte(s) {
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}

package upstream

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// ofConnection are headers about one connection, or about the way to berth and not the way on.
var ofConnection = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Proxy-Authorization",
	"Host", "Content-Length", "Content-Encoding", "Accept-Encoding", "Expect", "Cookie", "Forwarded", "Via",
	"X-Real-Ip", "Origin", "Referer",
}

// ofConnectionPrefixes begin others.
var ofConnectionPrefixes = []string{"X-Forwarded-", "Sec-", "X-Berth-", "Berth-", "Access-Control-"}

// ofOrigin are headers of answers that bind a client to the host they come from.
var ofOrigin = []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data",
	"Content-Security-Policy", "Server", "Nel", "Report-To"}

// cleanHead takes from a head what is not passed on: that, and what Connection names.
func cleanHead(h http.Header) {
	for _, list := range h.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for name := range h {
		if slices.Contains(ofConnection, name) ||
			slices.ContainsFunc(ofConnectionPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			delete(h, name)
		}
	}
}

// cleanAnswer is for the head of an answer. What it says of its body stays true.
func cleanAnswer(h http.Header) {
	kept := http.Header{}
	for _, name := range []string{"Content-Length", "Content-Encoding"} {
		setKey(kept, name, h.Get(name))
	}
	cleanHead(h)
	maps.Copy(h, kept)
	for _, name := range ofOrigin {
		h.Del(name)
	}
}

// header is what an upstream of Messages sees of the client's. The key goes into the header in which the client's SDK
// would send it.
func (u *Upstream) header(client http.Header) http.Header {
	h := client.Clone()
	if h == nil {
		h = http.Header{}
	}
	cleanHead(h)
	h.Del("X-Api-Key")
	h.Del("Authorization")
	switch apiKey, bearer := u.callerKeys(client); {
	case u.cfg.Key != "" && client.Get("X-Api-Key") == "" && client.Get("Authorization") != "":
		h.Set("Authorization", "Bearer "+u.cfg.Key)
	case u.cfg.Key != "":
		h.Set("X-Api-Key", u.cfg.Key)
	default:
		setKey(h, "X-Api-Key", apiKey)
		setKey(h, "Authorization", bearer)
	}
	// net/http would repeat a request that has one of these headers after its body was sent, if the name is written
	// as usual.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if once := h.Values(name); once != nil {
			h.Del(name)
			h[strings.ToLower(name)] = once
		}
	}
	h.Set("Accept-Encoding", "identity") // what is compressed comes late
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "berth")
	}
	return h
}

func setKey(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}

// callerKeys are the credentials that the client sends beside berth's own key: two headers have room for two.
func (u *Upstream) callerKeys(client http.Header) (apiKey, authorization string) {
	if key := client.Get("X-Api-Key"); !u.cfg.Own(key) {
		apiKey = key
	}
	_, key, _ := strings.Cut(client.Get("Authorization"), " ")
	if !u.cfg.Own(strings.TrimSpace(key)) {
		authorization = client.Get("Authorization")
	}
	return apiKey, authorization
}

package upstream

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ofConnection are headers that are not forwarded: they describe one connection, or the path from the client to
// berth.
var ofConnection = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Proxy-Authorization",
	"Host", "Content-Length", "Content-Encoding", "Accept-Encoding", "Expect", "Cookie", "Forwarded", "Via",
	"X-Real-Ip", "Origin", "Referer",
}

// ofConnectionPrefixes are prefixes of more headers that are not forwarded.
var ofConnectionPrefixes = []string{"X-Forwarded-", "Sec-", "X-Berth-", "Berth-", "Access-Control-"}

// ofOrigin are answer headers that are valid only for the host that sent them.
var ofOrigin = []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data",
	"Content-Security-Policy", "Server", "Nel", "Report-To"}

// cleanHead removes the headers that are not forwarded, including those that the Connection header names.
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

// cleanAnswer removes headers of an answer that are not forwarded. It keeps the length and encoding of the body.
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

// header returns the request headers for a Messages upstream. It sets the key in the header that the client's SDK
// uses for keys.
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
	// net/http would repeat a request that has one of these headers even after it has sent the body. It finds only
	// the canonical name, so the lower-case name prevents that.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if once := h.Values(name); once != nil {
			h.Del(name)
			h[strings.ToLower(name)] = once
		}
	}
	h.Set("Accept-Encoding", "identity") // compression would delay events
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

// callerKeys returns the credentials that the client sends beside berth's own key. The client can put one key into
// each of the two headers.
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
	text, _ := json.Marshal(u.OwnName(model)) // cannot fail: model is a string
	return slices.Concat(body[:start], text, body[end:])
}

// BodyName returns the name that a model has in the body that Do gets in pieces.
func (u *Upstream) BodyName(model string) string {
	if u.cfg.Kind == KindOpenAI {
		return model // the translation reads it
	}
	return u.OwnName(model)
}

// isRoutingPrefix reports whether a prefix only selects the upstream and is not part of the model's name.
func isRoutingPrefix(prefix string) bool { return strings.HasSuffix(prefix, "/") }

// OwnName returns the name that the upstream has for a model of requests.
func (u *Upstream) OwnName(model string) string {
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

package ports

import (
	"net/http"
	"slices"
	"strings"

	"berth/api"
)

// sandbox has browsers give a page an origin of its own, since the origin of the path belongs to the API and to all
// applications.
const sandbox = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

// notTheApps are headers of answers that would change more than the application: all of the host, or the connection.
var notTheApps = []string{"Alt-Svc", "Clear-Site-Data", "Nel", "Public-Key-Pins", "Reporting-Endpoints", "Report-To",
	"Service-Worker-Allowed", "Strict-Transport-Security"}

// keyProtocol begins the websocket subprotocol in which browsers send an API key.
const keyProtocol = "berth.key."

// cleanRequest removes berth's credentials from a request to an application.
func (p *relay) cleanRequest(h http.Header) {
	if p.e.cfg.Clean != nil {
		p.e.cfg.Clean(h)
	}
	replace(h, "X-Api-Key", slices.DeleteFunc(slices.Clone(h.Values("X-Api-Key")), p.e.isKey))
	kept := h.Values("Authorization")[:0:0]
	for _, v := range h.Values("Authorization") {
		scheme, key, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "Bearer") || !p.e.isKey(key) {
			kept = append(kept, v)
		}
	}
	replace(h, "Authorization", kept)
	var protocols []string
	for _, list := range h.Values("Sec-Websocket-Protocol") {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" && !strings.HasPrefix(name, keyProtocol) {
				protocols = append(protocols, name)
			}
		}
	}
	if len(protocols) > 0 {
		protocols = []string{strings.Join(protocols, ", ")}
	}
	replace(h, "Sec-Websocket-Protocol", protocols)
	hideCookies(h, api.IsLoginCookie)
	if p.t.prefix == "" {
		hideToken(h)
	}
}

// replace sets the values of a header, or removes it.
func replace(h http.Header, name string, values []string) {
	if len(values) == 0 {
		h.Del(name)
		return
	}
	h[name] = values
}

// cleanAnswer removes from an answer what would reach beyond the application, and moves its addresses below the prefix.
func (p *relay) cleanAnswer(h http.Header) {
	for _, name := range notTheApps {
		h.Del(name)
	}
	var cookies []string
	for _, line := range h.Values("Set-Cookie") {
		c, err := http.ParseSetCookie(line)
		if err != nil {
			continue // a browser might take it for another host's
		}
		if isTokenCookie(c.Name) || api.IsLoginCookie(c.Name) {
			continue
		}
		c.Domain = "" // for this host name alone
		if p.t.prefix != "" {
			c.Path = p.t.prefix + "/" + strings.TrimPrefix(c.Path, "/")
		}
		if s := c.String(); s != "" {
			cookies = append(cookies, s)
		}
	}
	replace(h, "Set-Cookie", cookies)
	if p.t.prefix == "" {
		return
	}
	if at := h.Get("Location"); strings.HasPrefix(at, "/") && !strings.HasPrefix(at, "//") {
		h.Set("Location", p.t.prefix+at)
	}
	h.Add("Content-Security-Policy", sandbox)
}

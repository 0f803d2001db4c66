package egress

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"berth/proto"

	"golang.org/x/net/http/httpguts"
)

// A Secret is put into requests in the place of its placeholder, which is all that code in the container has of it.
type Secret struct {
	Name, Placeholder, Value string
	Hosts                    []string // as GrantSecrets returned them
}

// Bounds of a container's secrets.
const (
	maxSecrets     = 64
	maxSecretHosts = 32
	maxSecretValue = 8 << 10 // bytes: it has to fit a head
	minSecretValue = 4       // shorter ones would be found in every answer
)

// GrantSecrets checks which secrets are to go where, for a container with a network as Grant returned it, and brings the hosts into their one form.
func (p *Proxy) GrantSecrets(n proto.Network, asked map[string]proto.NetworkSecret) (map[string]proto.NetworkSecret, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	policy, _, err := ParsePolicy(n)
	switch {
	case err != nil:
		return nil, err
	case p.cfg.Authority == nil:
		return nil, proto.Errorf(proto.Unsupported, "", "network_secrets", "this daemon puts no secrets into requests")
	case !policy.Mode.Covers(proto.NetworkAllowlist):
		return nil, invalid("network_secrets", "network_secrets are for a container with a network, and this has none; set network, or give them as secrets")
	case len(asked) > maxSecrets:
		return nil, invalid("network_secrets", "%d network secrets are too many; %d is the limit", len(asked), maxSecrets)
	}
	granted := map[string]proto.NetworkSecret{}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		s := asked[name]
		if s.Hosts, err = checkSecret(policy, name, s); err != nil {
			return nil, err
		}
		granted[name] = s
	}
	return granted, nil
}

// checkSecret checks one secret and returns its hosts in their one form. No error repeats a value.
func checkSecret(policy Policy, name string, s proto.NetworkSecret) (hosts []string, err error) {
	item := "network_secrets." + name
	switch {
	case len(s.Value) < minSecretValue || len(s.Value) > maxSecretValue:
		return nil, invalid(item, "network secret %.64q: its value must have %d to %d bytes", name, minSecretValue, maxSecretValue)
	case !httpguts.ValidHeaderFieldValue(s.Value) || strings.TrimSpace(s.Value) != s.Value:
		return nil, invalid(item, "network secret %.64q: its value cannot stand in the head of a request: it has a control character, or a blank at an end", name)
	case len(s.Hosts) == 0 || len(s.Hosts) > maxSecretHosts:
		return nil, invalid(item+".hosts", "network secret %.64q: it needs 1 to %d hosts that it may go to, such as api.example.com", name, maxSecretHosts)
	}
	for _, text := range s.Hosts {
		r, err := parseRule(text)
		if err != nil {
			return nil, invalid(item+".hosts", "network secret %.64q: %s", name, err)
		}
		if !policy.covers(r) {
			return nil, invalid(item+".hosts", "network secret %.64q: %s is not on the list of hosts that the container may reach; add it to network.allow", name, r)
		}
		hosts = append(hosts, r.String())
	}
	return hosts, nil
}

// covers reports whether all that a rule lets through, the policy does too, or at least at one of its ports.
func (p Policy) covers(r Rule) bool {
	if p.Mode == proto.NetworkOpen {
		return true
	}
	return slices.ContainsFunc(p.Rules, func(own Rule) bool {
		if own.Port != r.Port && own.Port != 0 && r.Port != 0 || own.Port != r.Port && !isWeb(max(own.Port, r.Port)) {
			return false
		}
		if own.Wildcard && !r.Wildcard {
			return own.fits(Target{Name: r.Name, Addr: r.Addr, Port: max(own.Port, r.Port, 80)})
		}
		return own.Name == r.Name && own.Addr == r.Addr && own.Wildcard == r.Wildcard
	})
}

// A swap is a secret with the rules for where it goes.
type swap struct {
	Secret
	rules []Rule
}

// swaps are all secrets of a container. None of them costs anything.
type swaps []swap

func newSwaps(list []Secret) (s swaps) {
	for _, secret := range list {
		one := swap{Secret: secret}
		for _, text := range secret.Hosts {
			if r, err := parseRule(text); err == nil {
				one.rules = append(one.rules, r)
			}
		}
		s = append(s, one)
	}
	return s
}

// at are those that go to a target. In clear text one goes only where its list names the port: whoever writes "example.com" does not mean to have it
// read on the way. Who names 443 does not either, whatever code in the container speaks there.
func (s swaps) at(t Target, encrypted bool) (some swaps) {
	for _, one := range s {
		if slices.ContainsFunc(one.rules, func(r Rule) bool { return r.fits(t) && (encrypted || r.Port != 0 && r.Port != 443) }) {
			some = append(some, one)
		}
	}
	return some
}

// putIn puts the secrets into a request, wherever it has their placeholders: in headers, in a password for Basic authentication, in its path and
// query. A body is sent as it is. What it returns takes them out of the answer again.
func (s swaps) putIn(out *http.Request, p *passage) *veil {
	if len(s) == 0 {
		return nil
	}
	hide := &veil{}
	for _, one := range s {
		found := false
		for name, lines := range out.Header {
			for i, line := range lines {
				if fresh := one.inHeader(name, line, hide); fresh != line {
					lines[i], found = fresh, true
				}
			}
		}
		if one.inURL(out.URL) || found {
			p.used = append(p.used, one.Name)
		}
		hide.add(one.Value, one.Placeholder)
	}
	out.Header.Set("Accept-Encoding", "identity") // else the answer could not be looked through
	return hide
}

// inHeader puts a secret into a line of a header.
func (s swap) inHeader(name, line string, hide *veil) string {
	kind, code, ok := strings.Cut(line, " ")
	if name != "Authorization" || !ok || !strings.EqualFold(kind, "Basic") {
		return strings.ReplaceAll(line, s.Placeholder, s.Value)
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(code))
	if err != nil || !strings.Contains(string(text), s.Placeholder) {
		return line
	}
	fresh := base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(string(text), s.Placeholder, s.Value)))
	hide.add(fresh, strings.TrimSpace(code))
	return kind + " " + fresh
}

// inURL puts a secret into a path and a query, and reports whether it was there.
func (s swap) inURL(u *url.URL) bool {
	path, query := u.EscapedPath(), u.RawQuery
	if !strings.Contains(path+query, s.Placeholder) {
		return false
	}
	u.RawQuery = strings.ReplaceAll(query, s.Placeholder, url.QueryEscape(s.Value))
	u.Path, u.RawPath = strings.ReplaceAll(u.Path, s.Placeholder, s.Value), strings.ReplaceAll(path, s.Placeholder, url.PathEscape(s.Value))
	return true
}

// A veil has placeholders again in the place of secrets that a host repeats, such as in "invalid key sk-…": what a model reads is not to have
// them. It does not keep a host that means to tell from telling, in another form. A nil veil hides nothing.
type veil struct {
	words []word
}

type word struct{ find, with []byte }

// add has one secret hidden as it is, and as JSON and URLs have it.
func (v *veil) add(value, placeholder string) {
	quoted, _ := json.Marshal(value) // a string always can be
	forms := []string{value, string(quoted[1 : len(quoted)-1]), url.QueryEscape(value), url.PathEscape(value)}
	for i, form := range forms {
		if !slices.Contains(forms[:i], form) {
			v.words = append(v.words, word{[]byte(form), []byte(placeholder)})
		}
	}
}

// takeOut hides the secrets in an answer. A body that is packed, though nobody asked for that, passes as it is.
func (v *veil) takeOut(res *http.Response) {
	if v == nil {
		return
	}
	for _, lines := range res.Header {
		for i := range lines {
			lines[i] = v.hide(lines[i])
		}
	}
	res.Status, res.Trailer = v.hide(res.Status), nil // trailers come when the body has been looked through
	coding := res.Header.Get("Content-Encoding")
	if res.StatusCode == http.StatusSwitchingProtocols || res.Body == http.NoBody || coding != "" && coding != "identity" || res.Request.Method == http.MethodHead {
		return
	}
	res.Body, res.ContentLength = &veiled{body: res.Body, veil: v}, -1
}

func (v *veil) hide(text string) string {
	for _, w := range v.words {
		text = strings.ReplaceAll(text, string(w.find), string(w.with))
	}
	return text
}

// Package placeholder puts network secrets in the place of their placeholders in requests, and hides the secrets in
// answers. The proxy calls it for each request.
package placeholder

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"berth/egress"
	"berth/proto"

	"golang.org/x/net/http/httpguts"
)

// Bounds of a container's secrets.
const (
	maxSecrets     = 64
	maxSecretHosts = 32
	maxSecretValue = 8 << 10 // bytes: it has to fit into a head
	minSecretValue = 4       // shorter values would occur in every answer
)

// Check checks which secrets go to which hosts, for a container with this policy, and normalizes the hosts.
func Check(policy egress.Policy, asked map[string]proto.NetworkSecret) (map[string]proto.NetworkSecret, error) {
	switch {
	case !policy.Mode.Covers(proto.NetworkAllowlist):
		return nil, proto.Invalid("network_secrets", "network_secrets are for a container with a network, and this "+
			"has none; set network, or give them as secrets")
	case len(asked) > maxSecrets:
		return nil, proto.Invalid("network_secrets", "%d network secrets are too many; %d is the limit", len(asked),
			maxSecrets)
	}
	granted := map[string]proto.NetworkSecret{}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		s, err := asked[name], error(nil)
		if s.Hosts, err = checkSecret(policy, name, s); err != nil {
			return nil, err
		}
		granted[name] = s
	}
	return granted, nil
}

// checkSecret checks one secret and returns its normalized hosts. No error repeats a value.
func checkSecret(policy egress.Policy, name string, s proto.NetworkSecret) (hosts []string, err error) {
	item := "network_secrets." + name
	switch {
	case len(s.Value) < minSecretValue || len(s.Value) > maxSecretValue:
		return nil, proto.Invalid(item, "network secret %.64q: its value must have %d to %d bytes", name,
			minSecretValue, maxSecretValue)
	case !httpguts.ValidHeaderFieldValue(s.Value) || strings.TrimSpace(s.Value) != s.Value:
		return nil, proto.Invalid(item, "network secret %.64q: its value cannot stand in the head of a request: it "+
			"has a control character, or a blank at an end", name)
	case len(s.Hosts) == 0 || len(s.Hosts) > maxSecretHosts:
		return nil, proto.Invalid(item+".hosts", "network secret %.64q: it needs 1 to %d hosts that it may go to, "+
			"such as api.example.com", name, maxSecretHosts)
	}
	for _, text := range s.Hosts {
		r, err := egress.ParseRule(text)
		if err != nil {
			return nil, proto.Invalid(item+".hosts", "network secret %.64q: %s", name, err)
		}
		if !policy.Covers(r) {
			return nil, proto.Invalid(item+".hosts", "network secret %.64q: %s is not on the list of hosts that the "+
				"container may reach; add it to network.allow", name, r)
		}
		hosts = append(hosts, r.String())
	}
	return hosts, nil
}

// Set are all secrets of a container.
type Set struct {
	all     []placeholder
	matcher func() *matcher // finds all of them; made at the first use
}

// A placeholder is a secret with the rules for its hosts.
type placeholder struct {
	egress.Secret
	number int // number among the container's secrets
	rules  []egress.Rule
}

// New returns the secrets of a container, in the form of CheckSecrets.
func New(list []egress.Secret) *Set {
	s := &Set{}
	for i, secret := range list {
		one := placeholder{Secret: secret, number: i}
		for _, text := range secret.Hosts {
			if r, err := egress.ParseRule(text); err == nil {
				one.rules = append(one.rules, r)
			}
		}
		s.all = append(s.all, one)
	}
	s.matcher = sync.OnceValue(func() *matcher {
		var words []word
		for _, one := range s.all {
			words = appendForms(words, one.Value, one.Placeholder, one.number)
		}
		return newMatcher(words)
	})
	return s
}

// appendForms adds a text as it is, and in its JSON and URL forms.
func appendForms(words []word, text, with string, secret int) []word {
	quoted, _ := json.Marshal(text) // a string can always be encoded
	forms := []string{text, string(quoted[1 : len(quoted)-1]), url.QueryEscape(text), url.PathEscape(text)}
	for i, form := range forms {
		if !slices.Contains(forms[:i], form) {
			words = append(words, word{find: []byte(form), with: []byte(with), secret: secret})
		}
	}
	return words
}

// at returns the secrets that go to a target. In clear text a secret goes only where its list names the port: a plain
// "example.com" does not allow eavesdropping. Naming port 443 does not either, whatever protocol the code speaks
// there.
func (s *Set) at(t egress.Target, encrypted bool) (some []placeholder) {
	for _, one := range s.all {
		if slices.ContainsFunc(one.rules, func(r egress.Rule) bool {
			return r.Fits(t) && (encrypted || r.Port != 0 && r.Port != 443)
		}) {
			some = append(some, one)
		}
	}
	return some
}

// GoTo reports whether secrets go to a target over TLS.
func (s *Set) GoTo(t egress.Target) bool { return len(s.at(t, true)) > 0 }

// maxFilled bounds the bytes inserted into one request, however often it repeats a placeholder. Hosts accept no
// longer head.
const maxFilled = 64 << 10

// A filling inserts secrets into one request.
type filling struct {
	secrets []placeholder
	room    int    // bytes that may still be inserted; negative if they did not suffice
	used    []bool // by index of the placeholder
	own     []word // words to hide for this request alone
}

// Insert replaces the placeholders in a request to a target: in headers, in a password for Basic authentication, in
// path and query. A body is sent unchanged. Insert returns the names of the secrets that it inserted. The redactor
// removes the secrets from the answer.
func (s *Set) Insert(out *http.Request, t egress.Target, encrypted bool) (used []string, hide *Redactor, err error) {
	secrets := s.at(t, encrypted)
	if len(secrets) == 0 {
		return nil, nil, nil
	}
	f := &filling{secrets: secrets, room: maxFilled, used: make([]bool, len(secrets))}
	for name, lines := range out.Header {
		for i, line := range lines {
			lines[i] = f.header(name, line)
		}
	}
	path := out.URL.EscapedPath()
	if fresh := f.put(path, url.PathEscape); fresh != path {
		out.URL.Path, out.URL.RawPath = f.put(out.URL.Path, asItIs), fresh
	}
	out.URL.RawQuery = f.put(out.URL.RawQuery, url.QueryEscape)
	if f.room < 0 {
		return nil, nil, egress.Refuse(proto.TooLarge, "head_too_large",
			"the request would have more than %d bytes of "+
				"secrets in it; use their placeholders in fewer places", maxFilled)
	}
	out.Header.Set("Accept-Encoding", "identity") // otherwise the answer could not be searched
	hide = &Redactor{hides: make([]bool, len(s.all)), parts: []*matcher{s.matcher()}}
	for i, one := range secrets {
		hide.hides[one.number] = true
		if f.used[i] {
			used = append(used, one.Name)
		}
	}
	if len(f.own) > 0 {
		hide.parts = append(hide.parts, newMatcher(f.own))
	}
	return used, hide, nil
}

// put returns a text with secrets inserted.
func (f *filling) put(text string, escape func(string) string) string {
	for i, one := range f.secrets {
		n := strings.Count(text, one.Placeholder)
		if n == 0 {
			continue
		}
		value := escape(one.Value)
		if f.room -= n * len(value); f.room < 0 {
			return text
		}
		f.used[i] = true
		text = strings.ReplaceAll(text, one.Placeholder, value)
	}
	return text
}

func asItIs(text string) string { return text }

// header returns a line of a header with secrets inserted.
func (f *filling) header(name, line string) string {
	kind, code, ok := strings.Cut(line, " ")
	if name != "Authorization" || !ok || !strings.EqualFold(kind, "Basic") {
		return f.put(line, asItIs)
	}
	code = strings.TrimSpace(code)
	text, err := base64.StdEncoding.DecodeString(code)
	fresh := f.put(string(text), asItIs)
	if err != nil || fresh == string(text) {
		return line
	}
	fresh = base64.StdEncoding.EncodeToString([]byte(fresh))
	f.own = appendForms(f.own, fresh, code, -1)
	return kind + " " + fresh
}

package toolstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/proto"
	"berth/session/secrets"
	"berth/tools/toolstore/field"
)

// environment is the environment of a version's process: the deployment's provider keys, overridden by its own
// variables.
func (c *Store) environment(tool string, v versionRecord) (map[string]string, error) {
	env := maps.Clone(c.cfg.ProviderKeys)
	if v.Sealed == "" {
		return env, nil
	}
	text, err := c.cfg.Vault.Unseal(tool, v.Sealed)
	if err != nil {
		return nil, err
	}
	if env == nil {
		env = map[string]string{}
	}
	return env, json.Unmarshal(text, &env)
}

// split separates values that can be hidden from values that are too short; the latter are passed as plain
// environment.
func split(env map[string]string) (hidden, plain map[string]string) {
	hidden, plain = map[string]string{}, map[string]string{}
	for name, value := range env {
		if len(value) >= secrets.MinSecret {
			hidden[name] = value
		} else {
			plain[name] = value
		}
	}
	return hidden, plain
}

// splitEnv removes from an environment the secrets that the proxy inserts.
func splitEnv(cfg Configuration, env map[string]string) (secrets map[string]proto.NetworkSecret,
	rest map[string]string) {
	if len(cfg.EnvHosts) == 0 {
		return nil, env
	}
	secrets, rest = map[string]proto.NetworkSecret{}, maps.Clone(env)
	for name, hosts := range cfg.EnvHosts {
		secrets[name] = proto.NetworkSecret{Value: env[name], Hosts: hosts}
		delete(rest, name)
	}
	return secrets, rest
}

// providers are the variables that a file of provider keys may have.
var providers = []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"}

// CheckProviderKey refuses an invalid pair in a file of provider keys.
func CheckProviderKey(name, key string) error {
	if !slices.Contains(providers, name) {
		return fmt.Errorf("write NAME=KEY with one of %s", strings.Join(providers, ", "))
	}
	if len(key) < secrets.MinSecret {
		return fmt.Errorf("the value of %s is no key; a key has at least %d bytes", name, secrets.MinSecret)
	}
	return nil
}

// hideInput hides secrets in a run before it is recorded. A run that waits for approval also keeps its original input,
// sealed.
func (c *Store) hideInput(rec *runRecord, env map[string]string) (err error) {
	input := rec.Input
	rec.hideSecrets(env)
	if rec.State == proto.RunParked && !bytes.Equal(input, rec.Input) {
		rec.Kept, err = c.cfg.Vault.Seal(rec.ID, input)
	}
	return err
}

// hideSecrets hides the secrets of an environment in a run.
func (r *runRecord) hideSecrets(env map[string]string) {
	values, _ := split(env)
	hide := secrets.Hider(values)
	if hide == nil {
		return
	}
	r.Input, r.Output = hideInJSON(r.Input, hide), hideInJSON(r.Output, hide)
	for _, list := range []*[]string{&r.Logs.Stdout, &r.Logs.Stderr} {
		text := strings.Join(*list, "") // a secret may span several lines
		if hidden := hide(text); hidden != text {
			*list = proto.LogLines(hidden)
		}
	}
	for i, note := range r.Notes {
		r.Notes[i] = hide(note)
	}
	if e := r.Error; e != nil {
		e.Message, e.Traceback, e.Field, e.Name = hide(e.Message), hide(e.Traceback), hide(e.Field), hide(e.Name)
	}
}

// hideInJSON hides secrets in the texts of a JSON value. The result is JSON.
func hideInJSON(raw json.RawMessage, hide func(string) string) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	raw, err := field.MapStrings(raw, hide)
	if err != nil { // cannot fail: this package has written or checked the value
		return json.RawMessage("null")
	}
	// a secret that is a number, or spans several values
	switch n := hide(string(raw)); {
	case n == string(raw):
		return raw
	case json.Valid([]byte(n)):
		return json.RawMessage(n)
	}
	return json.RawMessage(`"[redacted]"`)
}

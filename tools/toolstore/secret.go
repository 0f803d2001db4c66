package toolstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/code"
	"berth/proto"
	"berth/session/secrets"
)

// seal seals a tool's environment for the ledger, under the tool's ID.
func (c *Store) seal(tool string, env map[string]string) (string, error) {
	if len(env) == 0 {
		return "", nil
	}
	text, err := json.Marshal(env)
	if err != nil {
		return "", err
	}
	return c.cfg.Vault.Seal(tool, text)
}

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
		return fmt.Errorf("%s is no key", name)
	}
	return nil
}

// hideSecrets replaces a run's secrets in its record.
func hideSecrets(r *Run, values map[string]string) {
	hide := secrets.Hider(values)
	if hide == nil {
		return
	}
	r.Input, r.Output = hideIn(r.Input, hide), hideIn(r.Output, hide)
	r.Logs.Stdout, r.Logs.Stderr = hideLines(r.Logs.Stdout, hide), hideLines(r.Logs.Stderr, hide)
	for i, note := range r.Notes {
		r.Notes[i] = hide(note)
	}
	if e := r.Error; e != nil {
		e.Message, e.Traceback, e.Field, e.Name = hide(e.Message), hide(e.Traceback), hide(e.Field), hide(e.Name)
	}
}

// hideLines hides secrets in lines taken together: a secret may span several.
func hideLines(lines []string, hide func(string) string) []string {
	text := strings.Join(lines, "")
	if hidden := hide(text); hidden != text {
		return code.Lines(hidden)
	}
	return lines
}

// hideIn hides secrets in the texts of a JSON value. The result is JSON.
func hideIn(raw json.RawMessage, hide func(string) string) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	v, err := parse("value", raw)
	if err == nil {
		raw, err = encode(mapStrings(v, hide))
	}
	if err != nil { // cannot fail: encode wrote it, or parse read it
		return json.RawMessage("null")
	}
	// a secret that is a number, or spans several values
	if n := hide(string(raw)); n != string(raw) && json.Valid([]byte(n)) {
		return json.RawMessage(n)
	} else if n != string(raw) {
		return json.RawMessage(`"[redacted]"`)
	}
	return raw
}

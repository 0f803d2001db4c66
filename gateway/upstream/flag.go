package upstream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth/gateway/upstream/answer"
)

// Parse reads the value of an --upstream flag: [PREFIX=][openai+]URL.
//
//	https://api.example.com                     all models
//	claude-=https://api.example.com             models whose name begins with claude-
//	local/=openai+http://127.0.0.1:8080/v1      models local/*, without that prefix; it speaks chat completions
func Parse(text string) (Config, error) {
	head, _, ok := strings.Cut(text, "://")
	if !ok { // the user part of a malformed URL may hold a key
		return Config{}, invalid("%q is no upstream; write [PREFIX=]URL, such as claude-=https://api.example.com",
			answer.Short(text[strings.LastIndexByte(text, '@')+1:]))
	}
	cfg := Config{Kind: KindMessages, URL: text}
	if prefix, _, ok := strings.Cut(head, "="); ok {
		cfg.Prefixes, cfg.URL = []string{prefix}, text[len(prefix)+1:]
	}
	if address, ok := strings.CutPrefix(cfg.URL, "openai+"); ok {
		cfg.Kind, cfg.URL = KindOpenAI, address
	}
	if len(cfg.Prefixes) == 0 {
		cfg.Prefixes = []string{""}
	}
	cfg.Name = "of all models" // does not show the host, which may be confidential
	if cfg.Prefixes[0] != "" {
		cfg.Name = "of " + modelsOf(cfg.Prefixes[0])
	}
	_, err := newUpstream(cfg, nil, nil)
	return cfg, err
}

// WithKeys sets the keys of upstreams. keys maps a model prefix to a key; "*" is the prefix of the upstream for all
// models.
func WithKeys(list []Config, keys map[string]string) []Config {
	list = slices.Clone(list)
	for i, cfg := range list {
		for _, p := range cfg.Prefixes {
			list[i].Key = cmp.Or(list[i].Key, keys[cmp.Or(p, "*")])
		}
	}
	return list
}

// CheckKey returns a function that checks the names in a key file. It refuses a name that is no upstream's prefix.
func CheckKey(list []Config) func(name, key string) error {
	var names []string
	for _, cfg := range list {
		for _, p := range cfg.Prefixes {
			names = append(names, cmp.Or(p, "*"))
		}
	}
	return func(name, _ string) error {
		if !slices.Contains(names, name) {
			return fmt.Errorf("write PREFIX=KEY with the prefix of an --upstream, or *=KEY for the one that has all "+
				"models; there are %q", names)
		}
		return nil
	}
}

package daemon

import (
	"net/http"
	"slices"

	"berth/gateway/upstream"
	"berth/state/keys"
	"berth/tools/toolstore"
)

// readKeys reads the file with the keys of model providers for stored tools.
func (d *Daemon) readKeys() (map[string]string, error) {
	if d.cfg.ProviderKeys == "" {
		return nil, nil
	}
	return keys.ReadPairs(d.cfg.ProviderKeys, "provider keys", toolstore.CheckProviderKey)
}

// openUpstreams checks the upstreams for Messages requests. It does not connect.
func (d *Daemon) openUpstreams() error {
	list, err := d.upstreams(d.cfg)
	if err != nil {
		return err
	}
	if d.models, err = upstream.Open(list, d.cfg.Log); err == nil {
		d.keep(d.models)
	}
	return err
}

// upstreams returns the upstreams of a configuration with their keys. They take a proxy from the usual environment
// variables.
func (d *Daemon) upstreams(cfg Config) ([]upstream.Config, error) {
	list := slices.Clone(cfg.Upstreams)
	if cfg.UpstreamKeys != "" {
		pairs, err := keys.ReadPairs(cfg.UpstreamKeys, "upstream keys", upstream.CheckKey(list))
		if err != nil {
			return nil, err
		}
		list = upstream.WithKeys(list, pairs)
	}
	for i := range list {
		list[i].Own = func(key string) bool { return d.knowsSecret(key) } // d.keys is opened later
		list[i].Proxy = http.ProxyFromEnvironment
		list[i].Timeout, list[i].IdleTimeout = cfg.UpstreamTimeout, cfg.UpstreamIdle
	}
	return list, nil
}

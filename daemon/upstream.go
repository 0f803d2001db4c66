package daemon

import (
	"net/http"
	"slices"

	"berth/gateway/upstream"
	"berth/state/keys"
	"berth/tools/toolstore"
)

// readKeys reads the files of keys that the daemon uses with others: those of stored tools are given back, those of
// upstreams put where they are used.
func (d *Daemon) readKeys() (providers map[string]string, err error) {
	if d.cfg.ProviderKeys != "" {
		if providers, err = keys.ReadPairs(d.cfg.ProviderKeys, "provider keys",
			toolstore.CheckProviderKey); err != nil {
			return nil, err
		}
	}
	if d.cfg.UpstreamKeys != "" {
		pairs, err := keys.ReadPairs(d.cfg.UpstreamKeys, "upstream keys", upstream.CheckKey(d.cfg.Upstreams))
		if err != nil {
			return nil, err
		}
		d.cfg.Upstreams = upstream.WithKeys(d.cfg.Upstreams, pairs)
	}
	return providers, nil
}

// openUpstreams checks where Messages requests go; it connects to nothing yet. The way there may need a proxy, which
// the environment names as it does for other programs.
func (d *Daemon) openUpstreams() (err error) {
	list := slices.Clone(d.cfg.Upstreams)
	for i := range list {
		list[i].Own = func(key string) bool { return d.keys.Knows(key) } // which are opened later
		list[i].Proxy = http.ProxyFromEnvironment
		list[i].Timeout, list[i].IdleTimeout = d.cfg.UpstreamTimeout, d.cfg.UpstreamIdle
	}
	if d.models, err = upstream.Open(list, d.cfg.Log); err == nil {
		d.keep(d.models)
	}
	return err
}

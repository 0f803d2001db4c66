package daemon

import (
	"net/http"
	"slices"

	"berth/catalog"
	"berth/gateway/upstream"
	"berth/keys"
)

// readKeys reads the files of keys that the daemon uses with others: those of stored tools are given back, those of upstreams put where they are used.
func (d *Daemon) readKeys() (providers map[string]string, err error) {
	if d.cfg.ProviderKeys != "" {
		if providers, err = keys.ReadPairs(d.cfg.ProviderKeys, "provider keys", catalog.CheckProviderKey); err != nil {
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

// openUpstreams opens where Messages requests go. The way there may need a proxy, which the environment names as it does for other programs.
func (d *Daemon) openUpstreams() (*upstream.Set, error) {
	list := slices.Clone(d.cfg.Upstreams)
	for i := range list {
		list[i].Own, list[i].Proxy = d.keys.Knows, http.ProxyFromEnvironment
		list[i].Timeout, list[i].IdleTimeout = d.cfg.UpstreamTimeout, d.cfg.UpstreamIdle
	}
	set, err := upstream.Open(list, d.cfg.Log)
	if err == nil {
		d.keep(set)
	}
	return set, err
}

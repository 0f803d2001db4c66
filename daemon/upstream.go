package daemon

import (
	"net/http"
	"slices"

	"berth/gateway/upstream"
	"berth/state/keys"
	"berth/tools/toolstore"
)

// readKeys reads the files with keys for other services. It returns the providers' keys for stored tools, and puts
// the upstreams' keys into their configuration.
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

// openUpstreams checks the upstreams for Messages requests. It does not connect. It takes a proxy from the usual
// environment variables.
func (d *Daemon) openUpstreams() (err error) {
	list := slices.Clone(d.cfg.Upstreams)
	for i := range list {
		list[i].Own = func(key string) bool { return d.knowsSecret(key) } // d.keys is opened later
		list[i].Proxy = http.ProxyFromEnvironment
		list[i].Timeout, list[i].IdleTimeout = d.cfg.UpstreamTimeout, d.cfg.UpstreamIdle
	}
	if d.models, err = upstream.Open(list, d.cfg.Log); err == nil {
		d.keep(d.models)
	}
	return err
}

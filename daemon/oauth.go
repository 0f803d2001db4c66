package daemon

import (
	"fmt"

	"berth/api"
	"berth/proto"
	"berth/state/tokens"
)

// openTokens opens what knows the access tokens of the operator's authorization server, if there is one.
func (d *Daemon) openTokens() (err error) {
	cfg := d.cfg.OAuth
	if cfg.Issuer == "" {
		return nil
	}
	cfg.Log = d.cfg.Log
	if d.tokens, err = tokens.Open(cfg); err != nil {
		return fmt.Errorf("--oauth-issuer and --oauth-resource: %w", err)
	}
	d.keep(d.tokens)
	return nil
}

// authenticator returns what knows who a request is from.
func (d *Daemon) authenticator() api.Authenticator {
	if d.tokens == nil {
		return d.keys
	}
	return tokens.Authenticator{Keys: d.keys, Tokens: d.tokens}
}

// challenge returns what answers the errors of requests without a credential; nil without access tokens.
func (d *Daemon) challenge() func(string, *proto.Error) string {
	if d.tokens == nil {
		return nil
	}
	return d.tokens.Challenge
}

// documents are the documents that anybody may read.
func (d *Daemon) documents() map[string]any {
	if d.tokens == nil {
		return nil
	}
	return d.tokens.Documents()
}

// knowsSecret reports whether a text is an API key or an access token for this daemon.
func (d *Daemon) knowsSecret(text string) bool { return d.keys.Knows(text) || d.tokens.IsOurs(text) }

package main

import "errors"

// oauthFlags adds the flags of `berth serve` for access tokens.
func (o *options) oauthFlags() {
	f, cfg := o.flags, &o.cfg
	f.StringVar(&cfg.OAuth.Issuer, "oauth-issuer", "", "URL of an OAuth authorization server whose access tokens (RFC "+
		"9068) are taken like API keys; a token stands for the API key that is named oauth:SUBJECT (default none)")
	f.StringVar(&cfg.OAuth.Resource, "oauth-resource", "", "URL by which clients reach this daemon, such as "+
		"https://berth.example.org; tokens must be for it or for its /mcp")
	f.StringVar(&cfg.OAuth.Claim, "oauth-claim", "sub", "claim of access tokens that is the SUBJECT")
	f.StringSliceVar(&cfg.OAuth.Scopes, "oauth-scope", nil, "scope that an access token must have (may be repeated)")
}

// checkOAuth refuses flags that need another one.
func (o *options) checkOAuth() error {
	a := o.cfg.OAuth
	switch {
	case a.Issuer == "" && len(a.Scopes) > 0:
		return errors.New("--oauth-scope needs --oauth-issuer")
	case a.Issuer == "" && a.Resource != "":
		return errors.New("--oauth-resource needs --oauth-issuer")
	case a.Issuer != "" && a.Resource == "":
		return errors.New("--oauth-issuer needs --oauth-resource")
	}
	return nil
}

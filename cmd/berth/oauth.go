package main

import (
	"fmt"

	"berth/daemon"

	"github.com/spf13/cobra"
)

// oauthFlags adds the flags of `berth serve` for access tokens.
func oauthFlags(cmd *cobra.Command, cfg *daemon.Config) {
	f := cmd.Flags()
	f.StringVar(&cfg.OAuth.Issuer, "oauth-issuer", "", "URL of an OAuth authorization server whose access tokens (RFC "+
		"9068) are taken like API keys; a token stands for the API key that is named oauth:SUBJECT (default none)")
	f.StringVar(&cfg.OAuth.Resource, "oauth-resource", "", "URL by which clients reach this daemon, such as "+
		"https://berth.example.org; tokens must be for it or for its /mcp")
	f.StringVar(&cfg.OAuth.Claim, "oauth-claim", "sub", "claim of access tokens that is the SUBJECT")
	f.StringSliceVar(&cfg.OAuth.Scopes, "oauth-scope", nil, "scope that an access token must have (may be repeated)")
	cmd.MarkFlagsRequiredTogether("oauth-issuer", "oauth-resource")
}

// checkOAuth refuses flags that need another one.
func checkOAuth(cfg *daemon.Config) error {
	if cfg.OAuth.Issuer == "" && len(cfg.OAuth.Scopes) > 0 {
		return fmt.Errorf("--oauth-scope needs --oauth-issuer")
	}
	return nil
}

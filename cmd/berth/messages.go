package main

import (
	"berth/daemon"
	"berth/gateway/upstream"

	"github.com/spf13/pflag"
)

// messagesFlags are those of the gateway for Messages requests.
func messagesFlags(f *pflag.FlagSet, cfg *daemon.Config) {
	f.Func("upstream", "where Messages requests go: URL, PREFIX=URL for models of that prefix, openai+URL for one "+
		"that speaks chat completions (may be repeated; default: they are refused)", func(text string) error {
		u, err := upstream.Parse(text)
		cfg.Upstreams = append(cfg.Upstreams, u)
		return err
	})
	f.StringVar(&cfg.UpstreamKeys, "upstream-keys", "", "file with lines PREFIX=KEY, or *=KEY, that others cannot "+
		"read: API keys for upstreams, by their prefix; read at the start (default: clients' own keys are passed on)")
	f.DurationVar(&cfg.UpstreamTimeout, "upstream-timeout", 0, "how long an upstream may take to begin its answer "+
		"(default 10m)")
	f.DurationVar(&cfg.UpstreamIdle, "upstream-idle-timeout", 0, "how long an upstream may be silent in the middle "+
		"of an answer (default 5m)")
	f.IntVar(&cfg.MaxRounds, "max-rounds", 0, "most rounds with an upstream in one Messages request, which then "+
		"ends with pause_turn (default 50)")
	f.DurationVar(&cfg.MaxTurn, "max-turn", 0, "time after which a Messages request begins no other round and ends "+
		"with pause_turn (default 10m)")
}

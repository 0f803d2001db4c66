package main

import (
	"berth/cmd/berth/internal/daemon"
	"berth/gateway/upstream"

	"github.com/spf13/pflag"
)

// messagesFlags are those of the gateway for Messages requests.
func messagesFlags(f *pflag.FlagSet, cfg *daemon.Config) {
	f.Func("upstream", "where Messages requests go: URL, PREFIX=URL for models of that prefix, openai+URL for one that speaks chat completions (may be repeated; default: they are refused)", func(text string) error {
		u, err := upstream.Parse(text)
		cfg.Upstreams = append(cfg.Upstreams, u)
		return err
	})
	f.IntVar(&cfg.MaxRounds, "max-rounds", 0, "most rounds with an upstream in one Messages request, which then ends with pause_turn (default 50)")
	f.DurationVar(&cfg.MaxTurn, "max-turn", 0, "time after which a Messages request begins no other round and ends with pause_turn (default 10m)")
}

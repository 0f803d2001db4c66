package main

import (
	"berth/daemon/settings"
	"berth/gateway/upstream"
)

// messagesFlags adds the flags of the gateway for Messages requests.
func (o *options) messagesFlags() {
	f, cfg := o.flags, &o.cfg
	f.Var(settings.NewList(&cfg.Upstreams, upstream.Parse), "upstream", "upstream of Messages "+
		"requests: URL, PREFIX=URL for models with that prefix, openai+URL "+
		"for an upstream with chat completions (may be repeated; default: Messages requests are refused)")
	f.StringVar(&cfg.UpstreamKeys, "upstream-keys", "", "file with lines PREFIX=KEY, or *=KEY, readable by its "+
		"owner only: API keys of upstreams by prefix; read at startup and reload (default: forward the client's key)")
	f.DurationVar(&cfg.UpstreamTimeout, "upstream-timeout", 0, "maximum time until an upstream starts its answer "+
		"(default 10m)")
	f.DurationVar(&cfg.UpstreamIdle, "upstream-idle-timeout", 0, "maximum pause in the middle of an upstream's "+
		"answer (default 5m)")
	f.IntVar(&cfg.MaxRounds, "max-rounds", 0, "maximum rounds with an upstream in one Messages request; the "+
		"request then ends with pause_turn (default 50)")
	f.DurationVar(&cfg.MaxTurn, "max-turn", 0, "time after which a Messages request starts no further round and ends "+
		"with pause_turn (default 10m)")
}

// Package gateway runs model turns: it lets any model behind an HTTP API work in a container.
//
//	turn          one request: rounds with the upstream, and the tool calls that run between them
//	round         one answer of the upstream
//	attempt       a turn that a client may send again: it continues where it was, and no call runs twice
//	journal       what the ledger keeps of a turn, so that a later daemon can continue it
//	Conversation  the turn in the dialect of its client
//	Containers    where calls run
//
// In: turns, attempts, the journal, and the container of a turn. Out: request and answer formats, which a
// Conversation translates (package messages), and the tools, which a Container runs (package containers). An edge
// calls a dialect's package, which calls Gateway.Answer.
package gateway

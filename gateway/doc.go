// Package gateway runs model turns: it lets any model behind an HTTP API work in a container.
//
//	turn          one request: rounds with the upstream, and the tool calls that run between them
//	round         one answer of the upstream
//	attempt       a turn whose request a client may repeat: the turn continues, and no call runs twice
//	journal       what the ledger stores of a turn, so that a later daemon can continue it
//	Conversation  the turn in the dialect of its client
//	Containers    where calls run
//
// The package owns turns, attempts, the journal, and the container of a turn. It does not know request and answer
// formats, which a Conversation translates (package messages). It does not run tools, which a Container does (package
// containers). An edge calls a dialect's package, which calls Gateway.Answer.
package gateway

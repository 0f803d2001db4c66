// Package gateway answers Messages requests that have the code execution tool: it has any model behind a Messages
// endpoint work in a container.
//
//	request   without the tool    goes to the upstream as it came, and its answer back: pass
//	          with it             becomes a turn
//	turn      rounds with the upstream, which sees plain client tools instead; between them what the model calls is run in a session
//	history   what was said so far, in the form that the upstream gets: earlier calls and results as tool_use and tool_result
//	embed     puts stored files into what the upstream gets, in the place of their IDs
//	round     one answer of the upstream, whole or as a stream
//	stream    where a streamed answer goes; without one, the answer is one JSON body. Both are made of the same blocks
//	attempt   a turn that an SDK may send again: it goes on where it was, and nothing is run twice
//
// What a request says and this package does not know goes on as it is: bodies are edited member by member, in their
// order.
package gateway

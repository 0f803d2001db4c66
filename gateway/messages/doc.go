// Package messages answers Messages requests with the code execution tool: it translates between the dialect of the
// client and the turns of package gateway.
//
//	request       without the tool it goes to the upstream as it came, and the answer comes back as it is
//	tools         the upstream gets plain tools in the place of the code execution tool
//	history       earlier calls and results, as the upstream gets them: tool_use and tool_result
//	embed         the content of stored files in the place of their IDs
//	round         one answer of the upstream, whole or as a stream
//	conversation  the turn: it adds rounds and results to the history and to the client's answer
//	stream        a streamed answer; without one, the answer is one JSON body. Both have the same blocks
//
// Members of requests and answers that this package does not know stay as they are: objects keep their order and their
// bytes. The Anthropic edge calls Service.Answer.
package messages

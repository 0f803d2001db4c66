// Package messages answers Messages requests that use the code execution tool. It translates between the dialect of
// the client and the turns of package gateway.
//
//	request       without the tool it is passed through to the upstream, and so is the answer
//	tools         the upstream gets plain tools in place of the code execution tool
//	history       earlier calls and results, as the upstream gets them: tool_use and tool_result
//	embed         the content of stored files in place of their IDs
//	round         one answer of the upstream, in one piece or as a stream
//	conversation  the turn: it adds rounds and results to the history and to the client's answer
//	stream        a streamed answer; without one, the answer is one JSON body. Both have the same blocks
//
// Members of requests and answers that this package does not know are passed on unchanged: objects keep the order and
// the bytes of their members. The Anthropic edge calls Service.Answer.
package messages

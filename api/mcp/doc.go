// Package mcp is the edge for clients of the Model Context Protocol: the tools of package tooluse, the code of
// package code, stored tools, and files as resources, over streamable HTTP at /mcp. Package daemon mounts it.
//
// The official SDK implements the protocol. This package decides what there is to call, who owns it, and in which
// container it runs:
//
//	Edge        the route, and all sessions
//	peer        who sent a message: its owner, the place of its containers and its session, if it has one
//	mcpSession  one MCP session: its peer and its container, which is created on first use and deleted at the end
//	envelope    what is read of a message before the SDK does, which decides whether it belongs to a session
//	tool        one row of the tool list: its description and its function
//	call        one running tool call: its input, and how to report progress
//
// A tool call runs with the caller of the HTTP request that brought it. It ends when the client cancels it, or when
// its session or its key ends. In a session, it does not end when the connection breaks, since the protocol lets a
// client come back for the answer.
//
// Protocol versions from 2026-07-28 on have no sessions: each request stands for itself. There, a call names its
// container, which the first call with a new name creates, and the end of the connection ends the call.
package mcp

// Package mcp is the edge for clients of the Model Context Protocol: the tools of package tooluse, the code of
// package code, stored tools, and files as resources, over streamable HTTP at /mcp. Package daemon mounts it.
//
// The official SDK implements the protocol. This package decides what there is to call, who owns it, and in which
// container it runs:
//
//	Edge        the route, and all sessions
//	mcpSession  one MCP session: its owner and its container, which is created on first use and deleted at the end
//	tool        one row of the tool list: its description and its function
//	call        one running tool call: its input, and how to report progress
//
// A tool call runs with the caller of the HTTP request that brought it. It ends when the client cancels it, or when
// its session or its key ends. It does not end when the connection breaks, since the protocol lets a client come back
// for the answer.
//
// A protocol version without sessions is not offered, since a shell would lose its directory after each call. Clients
// that know such a version fall back to the newest one with sessions.
package mcp

// Package mcp is the edge for clients of the Model Context Protocol: the tools of package tools and the code of
// package code, and files as resources, over streamable HTTP at /mcp.
//
// The protocol is the official SDK's. This package says what there is to call, whose it is, and which container it
// happens in:
//
//	Edge     the route, and all visits
//	visit    one MCP session: its owner, and its container, which is made when it is first needed and goes with it
//	tool     one row of the tool list: what clients see of it, and what it does
//	call     one tool call under way: its input, and the way to tell the client what happens meanwhile
//
// What a tool call is asked to do runs with the context of the HTTP request that brought it, as far as that says who
// asks. It ends when the client cancels it, its session ends, or its key does; not when the connection breaks, since
// the protocol lets a client come back for the answer.
//
// A protocol version without sessions is not offered: a shell that forgets its directory after each call is none.
// Clients that know it fall back to the newest one that has them.
package mcp

// Package api is the HTTP server that all edges share. An edge adds a table of routes, a dialect for errors, and the
// translation between requests and the core. Package daemon mounts the edges.
//
// The path of a request:
//
//	request ID → host and route → API key → body limit → Edge.Check → Route.Handle → log line and metrics
//
// A handler returns an error instead of writing one. One function, Server.fail, writes all errors, including those
// for unknown routes, wrong methods and panics, in the dialect of the edge that the path belongs to. If a handler
// fails after the answer has started, the server cuts the connection, so that a client cannot take half an answer for
// a whole one.
//
// Slow clients cannot hold resources: the header, idle connections, each read of a body and each write of an answer
// have a deadline. A request as a whole has none.
package api

// Package api is what all HTTP edges share, so that an edge is a table of routes, a dialect for
// errors, and translation, and nothing else.
//
// The way of a request:
//
//	request ID → route → body limit → API key → Edge.Check → Route.Handle → log line and metrics
//
// Whatever fails on that way, unknown routes, wrong methods and panics included, is an error
// that one place (Server.fail) renders in the dialect of the edge whose prefix the path has. A handler
// returns an error instead of writing one. If it fails after it has begun to write, the connection is cut, so
// that half an answer never looks like a whole one.
//
// Nobody can hold a request's resources by being slow: headers, idle connections, and each read
// of a body and each write of an answer have a deadline, though a request as a whole has none.
package api

// Package native is the project's own HTTP edge: containers, commands, files in containers, jobs,
// images, and everything live.
//
// routes.go is the table of all routes. Each row has the handler and, beside it, what the OpenAPI document
// says of the route: its query, its bodies, its statuses. The document is built from that table, and the same
// rows decide which query keys a request may have, so neither can drift from what is served.
//
//	call      one request: its query, checked; its body, decoded; its answer, encoded
//	stream    server-sent events and logs: one follower per request
//	live      a websocket: one reader, one follower per command, no queues
//	schema    JSON schemas of the wire types, by reflection
//
// A slow client holds up its own follower and nothing else: the follower then reads further on in what
// the command's output keeps, and tells what it missed in a gap event.
package native

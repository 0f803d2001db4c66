// Package tools has the commands about tools: `berth tools` for stored tools and their runs, `berth calls` for calls of
// the caller's tools by code in a container, `berth tool` for a model's tool-use block, and `berth mcp`. Package cli
// adds them to the root command and uses Flags for new containers.
package tools

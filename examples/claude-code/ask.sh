#!/bin/sh
# The first line is all that Claude Code needs. It gives each of its sessions a container.
set -eu
claude mcp add --transport http berth "$BERTH_URL/mcp" --header "X-Api-Key: $BERTH_API_KEY"

claude -p "What is 2**100? Compute it with berth." --allowedTools mcp__berth__bash,mcp__berth__run_code
claude mcp remove berth

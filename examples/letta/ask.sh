#!/bin/sh
# Letta Code with the skill in .skills/berth: its agent runs code by the program berth, in containers.
set -eu
letta backend local
letta connect openai-compatible --base-url "$OPENAI_BASE_URL" --api-key "$OPENAI_API_KEY"
letta -p "What is 2**100? Compute it with berth." --ephemeral --model "openai-compatible/$MODEL"

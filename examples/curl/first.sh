#!/bin/sh
# A container, a file, a command, some Python, and the end of the container, with curl and jq alone.
set -eu
: "${BERTH_URL:=http://127.0.0.1:7117}"
call() { curl -sS --fail-with-body -H "X-Api-Key: $BERTH_API_KEY" "$@"; }

id=$(call "$BERTH_URL/v1/containers" -d '{}' | jq -r .id)
call -X PUT "$BERTH_URL/v1/containers/$id/fs/content?path=/workspace/data.csv" \
	-H 'Content-Type: application/octet-stream' --data-binary @data.csv >/dev/null
call "$BERTH_URL/v1/containers/$id/exec" -d '{"command": "wc -l /workspace/data.csv"}' | jq -r .result.stdout
call "$BERTH_URL/v1/run_code" -d "{\"container\": \"$id\", \"code\": \"sum(range(10))\"}" | jq -r '.results[0]'
call -X DELETE "$BERTH_URL/v1/containers/$id" >/dev/null
echo "deleted $id"

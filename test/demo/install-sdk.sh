#!/usr/bin/env bash
# Installs the official Python SDK, at the versions that the tests pin, into .cache, once. Prints its directory.
set -euo pipefail
cd "$(dirname "$0")/../.."

list=test/sdktest/py/requirements.txt
sdk=$PWD/.cache/demo-sdk-$(sha256sum "$list" | cut -c1-12)
if [ ! -e "$sdk/installed" ]; then
	python3 -m venv --clear "$sdk"
	"$sdk/bin/pip" install --quiet --disable-pip-version-check -r "$list" >&2
	touch "$sdk/installed"
fi
echo "$sdk"

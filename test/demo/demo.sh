#!/usr/bin/env bash
# The main job from end to end, through public interfaces only: the daemon's HTTP API by way of the
# berth command. `make demo` builds what it needs and runs it.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=$PWD/demo-out
work=$(mktemp -d)
daemon=
model=
berth() { ./bin/berth "$@"; }
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() { printf '\033[2m$ berth%s\033[0m\n' "$(quoted "$@")" >&2; berth "$@"; }

# quoted is a command line as one would type it.
quoted() {
	local word
	for word in "$@"; do
		if [[ $word =~ ^[A-Za-z0-9_./:=@%+-]+$ ]]; then printf ' %s' "$word"; else printf ' %s' "${word@Q}"; fi
	done
}

finish() {
	if [ -n "$model" ] && kill -TERM "$model" 2>/dev/null; then
		wait "$model" || true
	fi
	if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then
		wait "$daemon" || true
	fi
	rm -rf "$work"
}
trap finish EXIT

# start_model plays the model of the last part; see test/demo/model.json.
start_model() {
	mkfifo "$work/url"
	./bin/berth upstream-script test/demo/model.json >"$work/url" &
	model=$!
	read -r model_url <"$work/url"
}

# start_daemon returns once the daemon says that it is ready, and where it listens.
start_daemon() {
	mkfifo "$work/log"
	./bin/berth serve --listen 127.0.0.1:0 --data "$work/data" --stop-on-exit --sweep-every 1s --upstream "$model_url" 2>"$work/log" &
	daemon=$!
	exec 9<"$work/log"
	while IFS= read -r line <&9; do
		case $line in
		*"berth is ready"*)
			BERTH_HOST=${line#*url=}
			export BERTH_HOST=${BERTH_HOST%% *} BERTH_API_KEY
			BERTH_API_KEY=$(<"$work/data/api-key")
			cat <&9 >>"$work/daemon.log" &
			return
			;;
		*) echo "$line" >&2 ;;
		esac
	done
	echo "the daemon did not start; the lines above say why, and so does: make doctor" >&2
	exit 1
}

# A year of hourly temperatures in Seattle, 8,759 rows: NOAA's, in the public domain, as Debian packages
# it in python3-vega-datasets (MIT).
fetch_data() {
	local path=usr/lib/python3/dist-packages/vega_datasets/_data/seattle-temps.csv
	(cd "$work" && apt-get download -q python3-vega-datasets >apt.log 2>&1) || {
		apt-get update -qq && (cd "$work" && apt-get download -q python3-vega-datasets >apt.log 2>&1)
	} || { cat "$work/apt.log" >&2; exit 1; }
	dpkg-deb --fsys-tarfile "$work"/python3-vega-datasets_*.deb | tar -xO "./$path" >"$work/seattle-temps.csv"
}

say "Starting a daemon on a free port, with a data directory of its own"
start_model
start_daemon
echo "it listens on $BERTH_HOST"

say "The base image, built from Debian packages (a minute the first time)"
show image build base

say "Uploading a real data set: a year of hourly temperatures (NOAA, public domain)"
fetch_data
file=$(show files put "$work/seattle-temps.csv")
echo "$file"

say "A container that has it in \$INPUT_DIR"
box=$(show create --file "$file" --label demo=weather)
echo "$box"

say "bash looks at the data"
show exec --job weather -c 'head -3 $INPUT_DIR/*.csv; wc -l $INPUT_DIR/*.csv' "$box"

say "Python analyses it"
show cp test/demo/analyse.py "$box:weather/analyse.py"
show exec --job weather "$box" python3 analyse.py

say "A model edits the script: its tool-use block goes in as it is, the result block comes back"
cat >"$work/edit.json" <<'BLOCK'
{"type": "server_tool_use", "id": "srvtoolu_demo1", "name": "text_editor_code_execution",
 "input": {"command": "str_replace", "path": "/workspace/weather/analyse.py", "old_str": "cmap=\"viridis\"", "new_str": "cmap=\"coolwarm\""}}
BLOCK
show tool "$box" "$work/edit.json"
show exec --job weather "$box" python3 analyse.py >/dev/null

say "A long command, live: each line is shown as it is written"
show exec --job weather -c 'for m in 01 04 07 10; do grep -c "^2010/$m" $INPUT_DIR/*.csv | sed "s/^/readings in month $m: /"; sleep 0.7; done' "$box"

say "The job's manifest: what there is, and which command made it"
show jobs manifest "$box" weather

say "The chart comes out"
mkdir -p "$out"
show files ls
chart=$(berth files ls | awk '$0 ~ /chart.png/ { print $1; exit }') # the newest is first
show files get --force --quiet "$chart" "$out/chart.png"

say "An application with the official SDK and code execution, unchanged but for the base URL; the model is a script"
sdk=$(./test/demo/install-sdk.sh)
"$sdk/bin/python" test/demo/messages.py "$work/seattle-temps.csv" "$out/months.csv"
kill -TERM "$model"
wait "$model" # it fails if it was asked for anything else
model=

say "Another process comes back with nothing but the container's ID"
env -i PATH="$PATH" BERTH_HOST="$BERTH_HOST" BERTH_API_KEY="$BERTH_API_KEY" \
	./bin/berth exec --job weather -c 'echo "still here:"; ls' "$box"

say "A container with three seconds to live, and the sweeper"
short=$(show create --lifetime 3s)
show ls
sleep 4
show ls
show exec "$short" true || echo "(that is the typed error of an expired container)"
grep -h 'msg=swept' "$work/daemon.log" | tail -1 || true

say "Stopping the daemon"
show rm "$box"
kill -TERM "$daemon"
wait "$daemon"
daemon=

printf '\nThe chart is in %s, the table in %s\n' "$out/chart.png" "$out/months.csv"

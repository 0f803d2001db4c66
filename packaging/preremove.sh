#!/bin/sh
# Before removal. deb calls this with "remove" or "upgrade", rpm with the number of versions that stay. An upgrade ends
# nothing.
set -e

case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now berth.service
fi
[ -e /var/lib/berth/ledger.db ] || exit 0

# Containers outlive the daemon. One that is started with --stop-on-exit and ended when it is ready takes them along;
# their files stay. If it cannot start, such as with damaged data, removal goes on.
fifo=$(mktemp -u /run/berth-remove-XXXXXX)
mkfifo -m 0600 "$fifo"
exec 3<>"$fifo"
rm "$fifo"
/usr/lib/berth/berth serve --config /etc/berth/berth.toml --listen 127.0.0.1:0 --stop-on-exit >&3 2>&3 &
daemon=$!
timeout 300 grep -m1 -q -E 'berth is ready|^Error|^error' <&3 || true
kill -TERM $daemon 2>/dev/null || true
cat <&3 >/dev/null &
drain=$!
wait $daemon || true
kill $drain

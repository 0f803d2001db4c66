#!/bin/sh
# After removal. Only `apt-get purge` deletes data: keys, containers' files, images, stored files and logs. rpm has no
# purge; docs/install.md says what to delete by hand.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
[ "${1:-}" = purge ] || exit 0
rm -rf /var/lib/berth /var/cache/berth /run/berth /etc/berth
getent group berth >/dev/null && groupdel berth || true

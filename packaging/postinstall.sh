#!/bin/sh
# After installation or upgrade, of the deb and the rpm. The daemon restarts; its containers go on.
set -e

getent group berth >/dev/null || groupadd --system berth
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# An administrator's choice holds: an upgrade enables nothing that was disabled.
	if [ "${1:-}" = configure ] && [ -z "${2:-}" ] || [ "${1:-}" = 1 ]; then
		systemctl enable berth.service
		systemctl start berth.service
	else
		systemctl try-restart berth.service
	fi
fi

#!/bin/sh
# Before removal (dpkg: "remove", rpm: 0), but not before an upgrade: stops the daemon.
set -eu
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	case ${1:-} in
	remove | 0) systemctl disable --now sandbar.service || true ;;
	esac
fi

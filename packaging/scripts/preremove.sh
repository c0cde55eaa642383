#!/bin/sh
# Before removal ("remove" of dpkg, 0 of rpm), not before an upgrade: ends the daemon.
set -eu
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
	case ${1:-} in
	remove | 0) systemctl disable --now sandbar.service || true ;;
	esac
fi

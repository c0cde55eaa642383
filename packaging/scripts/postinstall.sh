#!/bin/sh
# After installation and upgrade: generates a token if there is none, and restarts a
# running daemon. It does not start a stopped one: the operator does
# ("systemctl enable --now sandbar").
set -eu
root=${DPKG_ROOT:-}

if [ ! -e "$root/etc/sandbar/token" ]; then
	(umask 077 && head -c 24 /dev/urandom | base64 >"$root/etc/sandbar/token")
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart sandbar.service || true
fi

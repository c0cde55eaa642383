#!/bin/sh
# After removal. "purge" of dpkg also removes the token and what the daemon kept.
set -eu
root=${DPKG_ROOT:-}
if [ "${1:-}" = purge ]; then
	rm -rf "$root/etc/sandbar" "$root/var/lib/sandbar" "$root/var/cache/sandbar"
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi

#!/bin/sh
# After removal. dpkg's "purge" also removes the token, the state and the cache.
set -eu
root=${DPKG_ROOT:-}
if [ "${1:-}" = purge ]; then
	rm -rf "$root/etc/sandbar" "$root/var/lib/sandbar" "$root/var/cache/sandbar"
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi

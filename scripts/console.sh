#!/bin/sh
# Bundles the browser console that bin/sandbar embeds: fetches its npm packages by exact
# version and checksum (internal/server/console/build) and bundles its sources. It needs
# only Go. If nothing has changed since the last run, it does nothing.
#
#   scripts/console.sh [test]    test: fetch also the packages that only tests use
set -eu

cd "$(dirname "$0")/.."
cache=${TESTENV_CACHE:-.cache}
mkdir -p "$cache/bin"
env -u GOOS -u GOARCH CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$cache/bin/console-build" ./internal/server/console/build
"$cache/bin/console-build" internal/server/console/app "$cache/console" internal/server/console/dist
[ "${1:-}" != test ] || "$cache/bin/console-build" test "$cache/console"

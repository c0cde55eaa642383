#!/bin/sh
# Prepares the files that bin/sandbar embeds for the modes simple and v86: fetches the
# WebAssembly modules, the PC emulator and its firmware by exact version and checksum
# (internal/wasm/artefact), and builds the emulator's guest program. It needs only Go.
# Existing files are not fetched again.
#
#   scripts/wasm.sh [DIRECTORY]    default: internal/wasm/artefact
set -u

cd "$(dirname "$0")/.." || exit 1
to=${1:-internal/wasm/artefact}
prepare=${TESTENV_CACHE:-.cache}/bin/wasm-prepare

mkdir -p "$(dirname "$prepare")" "$to" || exit 1
env -u GOOS -u GOARCH CGO_ENABLED=0 go build -o "$prepare" ./internal/wasm/artefact/prepare || exit 1
# The guest program is small and is built every time.
sh scripts/v86-guest.sh "$to/sandbar-guest" || exit 1
"$prepare" fetch "$to" && exit 0
cat >&2 <<'END'
wasm: Without these files bin/sandbar has neither the driver wasm nor the modes simple and v86.
wasm: They come from the registry that npm_config_registry, .npmrc or the npm client names, and from the
wasm: mirror of Debian that DEBIAN_MIRROR or apt names; https_proxy and http_proxy are respected.
wasm: Set npm_config_registry and DEBIAN_MIRROR, or install npm (Debian: apt-get install npm).
wasm: "make build WASM=0" builds without them.
END
exit 1

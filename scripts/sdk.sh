#!/bin/sh
# Builds the SDKs: a Python wheel for any platform, a wheel with the command for
# Linux on each processor of SDK_ARCHS, and the npm package. It needs no network:
# "make tools" has fetched the TypeScript compiler.
#
#   scripts/sdk.sh VERSION [DIRECTORY]    default: bin
set -eu

version=$1
cd "$(dirname "$0")/.."
root=$PWD to=${2:-bin} cache=${TESTENV_CACHE:-$PWD/.cache}
mkdir -p "$to"
to=$(cd "$to" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

python3 sdk/python/build.py "$version" "$to"
for arch in ${SDK_ARCHS:-}; do
	# The agent that the command embeds is of the same processor.
	mkdir "$tmp/$arch"
	echo '{"Replace":{"'"$root"'/internal/agent/embedded/sandbar-agent":"'"$tmp/$arch"'/agent"}}' >"$tmp/$arch/overlay.json"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$tmp/$arch/agent" ./cmd/sandbar-agent
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -overlay "$tmp/$arch/overlay.json" -tags embedagent,embedwasm,embedv86 \
		-ldflags "-X main.version=$version" -o "$tmp/$arch/sandbar" ./cmd/sandbar
	python3 sdk/python/build.py "$version" "$to" "$arch" "$tmp/$arch/sandbar"
done

# npm's versions have three numbers.
number=${version#v}
case $number in
[0-9]*.[0-9]*.[0-9]*) ;;
*) number=0.0.0-$(printf %s "$number" | tr -c 'A-Za-z0-9\n' -) ;;
esac
cp -R sdk/typescript "$tmp/npm"
rm -rf "$tmp/npm/dist" "$tmp/npm/node_modules"
ln -s "$cache/typescript/node_modules" "$tmp/npm/node_modules"
node=$(command -v node || echo /usr/bin/node)
"$node" "$cache/typescript/node_modules/typescript/bin/tsc" -p "$tmp/npm"
rm "$tmp/npm/node_modules"
sed -i "s/\"version\": \"[^\"]*\"/\"version\": \"$number\"/" "$tmp/npm/package.json"
cp LICENSE "$tmp/npm/"
(cd "$tmp/npm" && npm pack --offline --silent --pack-destination "$to")

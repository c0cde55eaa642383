#!/bin/sh
# Builds the SDKs: a Python wheel for any platform, the npm package, and for Linux on
# each processor of SDK_ARCHS a wheel with the command and an npm package of the
# command, which npm installs with the SDK's where it fits. It needs no network: "make
# tools" has fetched the TypeScript compiler.
#
#   scripts/sdk.sh VERSION [DIRECTORY]    default: bin
#
# SDK_COMMANDS=DIR: the commands are DIR/amd64 and DIR/arm64, and are not built.
set -eu

version=$1
cd "$(dirname "$0")/.."
root=$PWD to=${2:-bin} cache=${TESTENV_CACHE:-$PWD/.cache}
mkdir -p "$to"
to=$(cd "$to" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# npm's versions have three numbers.
number=${version#v}
case $number in
[0-9]*.[0-9]*.[0-9]*) ;;
*) number=0.0.0-$(printf %s "$number" | tr -c 'A-Za-z0-9\n' -) ;;
esac

# build_command ARCH FILE makes the command for Linux on a processor.
build_command() {
	if [ -n "${SDK_COMMANDS:-}" ]; then
		cp "$SDK_COMMANDS/$1" "$2"
		return
	fi
	# The agent and the porter that the command embeds are of the same processor.
	cat >"$tmp/overlay-$1.json" <<-END
		{"Replace": {"$root/internal/agent/embedded/sandbar-agent": "$tmp/agent-$1",
		  "$root/internal/agent/porter/embedded/sandbar-porter": "$tmp/porter-$1"}}
	END
	for program in agent porter; do
		CGO_ENABLED=0 GOOS=linux GOARCH=$1 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$tmp/$program-$1" "./cmd/sandbar-$program"
	done
	CGO_ENABLED=0 GOOS=linux GOARCH=$1 go build -trimpath -buildvcs=false -overlay "$tmp/overlay-$1.json" -tags embedagent,embedwasm,embedv86 \
		-ldflags "-X main.version=$version" -o "$2" ./cmd/sandbar
}

# pack DIRECTORY makes a package of npm.
pack() {
	cp LICENSE "$1/"
	(cd "$1" && npm pack --offline --silent --pack-destination "$to")
}

python3 sdk/python/build.py "$version" "$to"
optional=
for arch in ${SDK_ARCHS:-}; do
	case $arch in
	amd64) cpu=x64 ;;
	arm64) cpu=arm64 ;;
	*) echo "sdk: SDK_ARCHS has $arch; amd64 and arm64 are possible" >&2; exit 1 ;;
	esac
	mkdir -p "$tmp/linux-$cpu/bin"
	build_command "$arch" "$tmp/linux-$cpu/bin/sandbar"
	chmod 755 "$tmp/linux-$cpu/bin/sandbar"
	python3 sdk/python/build.py "$version" "$to" "$arch" "$tmp/linux-$cpu/bin/sandbar" # checks the processor
	cat >"$tmp/linux-$cpu/package.json" <<-END
		{
		  "name": "@sandbar/linux-$cpu",
		  "version": "$number",
		  "description": "The command of Sandbar for Linux, $cpu",
		  "license": "Apache-2.0",
		  "os": ["linux"],
		  "cpu": ["$cpu"],
		  "files": ["bin"]
		}
	END
	pack "$tmp/linux-$cpu"
	optional="$optional${optional:+, }\"@sandbar/linux-$cpu\": \"$number\""
done

cp -R sdk/typescript "$tmp/npm"
rm -rf "$tmp/npm/dist" "$tmp/npm/node_modules"
ln -s "$cache/typescript/node_modules" "$tmp/npm/node_modules"
node=$(command -v node || echo /usr/bin/node)
"$node" "$cache/typescript/node_modules/typescript/bin/tsc" -p "$tmp/npm"
rm "$tmp/npm/node_modules"
sed -i "s/\"version\": \"[^\"]*\"/\"version\": \"$number\"/" "$tmp/npm/package.json"
if [ -n "$optional" ]; then
	sed -i "s|\"type\": \"module\",|\"type\": \"module\",\n  \"optionalDependencies\": { $optional },|" "$tmp/npm/package.json"
fi
pack "$tmp/npm"

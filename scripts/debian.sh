#!/bin/sh
# Fetches Debian packages of any release and architecture and unpacks them. It needs
# no root, installs nothing, and does not change this machine's packages or lists; it
# reads only apt's sources, to find a mirror.
#
#   scripts/debian.sh SUITE ARCHITECTURE DIRECTORY PACKAGE[=VERSION]…
#
# An empty package that depends on a kernel stands for that kernel.
set -eu

suite=$1 arch=$2 to=$3
shift 3

say() { echo "debian: $*" >&2; }

for tool in apt-get apt-cache dpkg-deb tar; do
	command -v "$tool" >/dev/null || { say "$tool is missing: this needs a Debian-like system"; exit 1; }
done

# uris prints the URIs of apt's sources.
uris() {
	for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		if [ -r "$list" ]; then sed -n 's/^deb  *\(\[[^]]*\]  *\)\{0,1\}\([^ ]*\)  *.*/\2/p' "$list"; fi
	done
	for list in /etc/apt/sources.list.d/*.sources; do
		if [ -r "$list" ]; then sed -n 's/^URIs:  *//p' "$list" | tr ' ' '\n'; fi
	done
}
uri=$(uris | grep '/debian/*$' | head -n 1)
[ -n "$uri" ] || { say "apt has no Debian source on this machine"; exit 1; }

mkdir -p "$to"
tmp=$(mktemp -d "$to/tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$tmp/lists/partial" "$tmp/archives/partial"
: >"$tmp/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" >"$tmp/sources.list"
cat >"$tmp/apt.conf" <<-END
	APT::Architecture "$arch";
	APT::Architectures "$arch";
	APT::Sandbox::User "";
	Acquire::Languages "none";
	Acquire::Retries "2";
	Dir::State "$tmp";
	Dir::State::lists "$tmp/lists";
	Dir::State::status "$tmp/status";
	Dir::Cache "$tmp";
	Dir::Cache::archives "$tmp/archives";
	Dir::Etc::sourcelist "$tmp/sources.list";
	Dir::Etc::sourceparts "/dev/null";
END
export APT_CONFIG="$tmp/apt.conf"

say "fetching the package lists of $suite for $arch"
apt-get update -qq >&2
for package in "$@"; do
	kernel=$(apt-cache depends "${package%%=*}" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1)
	say "fetching ${kernel:-$package}"
	(cd "$tmp" && apt-get download -qq "${kernel:-$package}" >&2)
done
for deb in "$tmp"/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$to" --no-same-owner --exclude='./lib/modules' --exclude='./usr/lib/modules'
done

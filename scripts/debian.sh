#!/bin/sh
# Fetches packages of Debian, whatever this machine's own release and processor
# are, and unpacks them. Nothing is installed, root is not needed, and this
# machine's packages and lists are not touched; only where it gets its packages
# from is looked at.
#
#   scripts/debian.sh SUITE ARCHITECTURE DIRECTORY PACKAGE[=VERSION]…
#
# A package that is an empty one which depends on a kernel stands for that kernel.
set -eu

suite=$1 arch=$2 to=$3
shift 3

say() { echo "debian: $*" >&2; }

for tool in apt-get apt-cache dpkg-deb tar; do
	command -v "$tool" >/dev/null || { say "$tool is missing: this needs a Debian-like system"; exit 1; }
done

# uris prints where this machine gets packages of Debian from.
uris() {
	for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		if [ -r "$list" ]; then sed -n 's/^deb  *\(\[[^]]*\]  *\)\{0,1\}\([^ ]*\)  *.*/\2/p' "$list"; fi
	done
	for list in /etc/apt/sources.list.d/*.sources; do
		if [ -r "$list" ]; then sed -n 's/^URIs:  *//p' "$list" | tr ' ' '\n'; fi
	done
}
uri=$(uris | grep '/debian/*$' | head -n 1)
[ -n "$uri" ] || { say "the apt of this machine has no source of Debian"; exit 1; }

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

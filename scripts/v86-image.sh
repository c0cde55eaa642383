#!/bin/sh
# Builds an image for "sandbar stdio --mode v86" from Debian's i386 packages,
# without root: a kernel, busybox as the shell and its tools, and Sandbar's guest
# agent as the first program. Nothing is installed; this machine's own packages
# are not looked at. Running it again does nothing.
#
#   scripts/v86-image.sh [FILE]      default: .cache/v86/image.tar
#
# V86_SUITE names another release of Debian (bookworm), V86_KERNEL another of its
# kernel packages (linux-image-686).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
image=${1:-$root/.cache/v86/image.tar}
suite=${V86_SUITE:-bookworm}
kernel=${V86_KERNEL:-linux-image-686}

say() { echo "v86-image: $*" >&2; }

dir=$(dirname "$image")
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
image=$dir/$(basename "$image")
parts=$dir/parts

# guest builds the first program; it is part of what the image is made of.
guest() {
	(cd "$root" && env -u GOFLAGS GOOS=linux GOARCH=386 CGO_ENABLED=0 \
		go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$1" ./cmd/sandbar-guest)
}

# sources prints where this machine gets its packages from.
sources() {
	for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ -r "$list" ] && sed -n 's/^deb  *\(\[[^]]*\]  *\)\{0,1\}\([^ ]*\)  *.*/\2/p' "$list"
	done
	for list in /etc/apt/sources.list.d/*.sources; do
		[ -r "$list" ] && sed -n 's/^URIs:  *//p' "$list" | tr ' ' '\n'
	done
	echo http://deb.debian.org/debian
}

# packages fetches and unpacks the kernel and busybox into $parts.
packages() {
	for tool in apt-get apt-cache dpkg-deb tar; do
		command -v "$tool" >/dev/null || { say "$tool is missing: this script needs a Debian-like system"; return 1; }
	done
	tmp=$(mktemp -d "$dir/tmp.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 1' HUP INT TERM
	mkdir -p "$tmp/lists/partial" "$tmp/archives/partial" "$tmp/x"
	: >"$tmp/status"
	uri=$(sources | grep -v security | head -n 1)
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" >"$tmp/sources.list"
	cat >"$tmp/apt.conf" <<-END
		APT::Architecture "i386";
		APT::Architectures "i386";
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
	say "fetching the package lists of $suite for i386"
	apt-get update -qq >&2 || return 1
	package=$(apt-cache depends "$kernel" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1)
	package=${package:-$kernel}
	say "fetching $package and busybox-static"
	(cd "$tmp" && apt-get download -qq "$package" busybox-static >&2) || return 1
	for deb in "$tmp"/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tmp/x" --wildcards './boot/vmlinuz-*' './bin/busybox' './usr/bin/busybox' 2>/dev/null || :
	done
	mkdir -p "$tmp/parts"
	mv "$tmp"/x/boot/vmlinuz-* "$tmp/parts/vmlinuz"
	for busybox in "$tmp/x/bin/busybox" "$tmp/x/usr/bin/busybox"; do
		[ -f "$busybox" ] && mv "$busybox" "$tmp/parts/busybox"
	done
	[ -s "$tmp/parts/busybox" ] || { say "busybox-static has no busybox"; return 1; }
	echo "$suite $kernel" >"$tmp/parts/stamp"
	rm -rf "$parts"
	mv "$tmp/parts" "$parts"
}

[ "$(cat "$parts/stamp" 2>/dev/null)" = "$suite $kernel" ] || packages
guest "$parts/guest.new"
mv "$parts/guest.new" "$parts/guest"
(cd "$root" && go run ./internal/v86/mkimage -kernel "$parts/vmlinuz" -busybox "$parts/busybox" -guest "$parts/guest" -o "$image")

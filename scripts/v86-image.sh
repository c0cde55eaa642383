#!/bin/sh
# Builds an image for "sandbar stdio --mode v86" from Debian's i386 packages: a kernel,
# busybox as shell and utilities, and Sandbar's guest program as the init. It needs no
# root and installs nothing. Fetched packages are reused.
#
#   scripts/v86-image.sh [FILE]      default: .cache/v86/image.tar
#
# V86_SUITE is the Debian release (default bookworm), V86_KERNEL the kernel package
# (default linux-image-686).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${TESTENV_CACHE:-$root/.cache}
image=${1:-$cache/v86/image.tar}
wanted="${V86_SUITE:-bookworm} ${V86_KERNEL:-linux-image-686}"
parts=$cache/v86/parts

mkdir -p "$(dirname "$image")" "$cache/v86"
tmp=$(mktemp -d "$cache/v86/tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

if [ "$(cat "$parts/stamp" 2>/dev/null)" != "$wanted" ]; then
	sh "$root/scripts/debian.sh" "${wanted% *}" i386 "$tmp/x" "${wanted#* }" busybox-static
	mkdir "$tmp/parts"
	mv "$tmp"/x/boot/vmlinuz-* "$tmp/parts/vmlinuz"
	for busybox in "$tmp/x/bin/busybox" "$tmp/x/usr/bin/busybox"; do
		if [ -f "$busybox" ]; then mv "$busybox" "$tmp/parts/busybox"; fi
	done
	echo "$wanted" >"$tmp/parts/stamp"
	rm -rf "$parts"
	mv "$tmp/parts" "$parts"
fi
cd "$root"
sh scripts/v86-guest.sh "$tmp/guest"
env -u GOOS -u GOARCH CGO_ENABLED=0 go build -o "$tmp/mkimage" ./internal/wasm/v86/mkimage
"$tmp/mkimage" -kernel "$parts/vmlinuz" -busybox "$parts/busybox" -guest "$tmp/guest" -o "$image"

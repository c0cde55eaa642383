#!/bin/sh
# Fetches a Linux kernel for the tests that boot a guest in QEMU, into DIR/vmlinuz and
# DIR/modules (default DIR: .cache/qemu in the project's root). The kernel comes from the
# first PACKAGE (default linux-image-amd64) that this machine's apt sources have; it is
# unpacked, not installed. A second run does nothing. The kernel must support 9p over
# virtio; Debian's "cloud" kernels do not.
#
#   scripts/qemu-kernel.sh [DIR [PACKAGE...]]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-$root/.cache/qemu}
[ $# -eq 0 ] || shift
packages=${*:-linux-image-amd64}

# In loading order: the guest's init has no depmod and loads them as listed.
modules="virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_console netfs fscache 9pnet 9pnet_virtio 9p overlay tun"

say() { echo "qemu-kernel: $*" >&2; }

# Existing files are valid if they came from the same package and have the same modules.
wanted="$packages: $modules"
if [ -s "$dir/vmlinuz" ] && [ "$(cat "$dir/stamp" 2>/dev/null)" = "$wanted" ]; then
	exit 0
fi
for tool in apt-get apt-cache dpkg-deb tar; do
	command -v "$tool" >/dev/null || {
		say "$tool is missing: this script needs a Debian-like system."
		say "Elsewhere put a kernel at $dir/vmlinuz, the modules ($modules) at $dir/modules/NAME.ko, and their names, in this order, in $dir/modules/order."
		exit 1
	}
done
if [ "$(dpkg --print-architecture)" != amd64 ]; then
	say "only amd64 guests are supported"
	exit 1
fi

mkdir -p "$dir"
tmp=$(mktemp -d "$dir/tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# The package is usually a metapackage that depends on the newest kernel.
kernel() {
	for p in $packages; do
		depends=$(apt-cache depends "$p" 2>/dev/null) || continue
		found=$(echo "$depends" | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1)
		echo "${found:-$p}"
		return
	done
}
package=$(kernel)
if [ -z "$package" ]; then
	say "apt does not know $packages yet; updating its lists"
	apt-get update -qq
	package=$(kernel)
fi
[ -n "$package" ] || { say "apt has no kernel package: $packages"; exit 1; }

say "fetching $package"
(cd "$tmp" && apt-get download -qq "$package" 2>"$tmp/log") || { cat "$tmp/log" >&2; exit 1; }
mkdir "$tmp/x" "$tmp/modules"
dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -x -C "$tmp/x" --wildcards './boot/vmlinuz-*' '*.ko*'

for name in $modules; do
	ko=$(find "$tmp/x" -name "$name.ko*" | head -n 1)
	case $ko in
	'') continue ;; # built in, or not needed by this kernel
	*.xz) xz -dc "$ko" >"$tmp/modules/$name.ko" ;;
	*.zst) zstd -qdc "$ko" >"$tmp/modules/$name.ko" ;;
	*) cp "$ko" "$tmp/modules/$name.ko" ;;
	esac
	echo "$name" >>"$tmp/modules/order"
done
[ -s "$tmp/modules/9p.ko" ] || { say "$package has no module 9p"; exit 1; }

rm -rf "$dir/modules" "$dir/vmlinuz" "$dir/stamp"
mv "$tmp/modules" "$dir/modules"
mv "$tmp"/x/boot/vmlinuz-* "$dir/vmlinuz"
chmod 0644 "$dir/vmlinuz"
echo "$wanted" >"$dir/stamp"
say "kernel of $package is at $dir/vmlinuz"

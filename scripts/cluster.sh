#!/bin/sh
# Builds a Kubernetes for tests, from unmodified Go modules: Kubernetes, etcd, containerd, network
# plugins and gVisor. The versions are those of the modules in
# internal/test/testenv/cluster/testdata. The result does not belong to the working tree:
# it is in $SANDBAR_CACHE, by default sandbar in the user's cache directory, under its version. If
# it exists, the script does nothing. The first time takes 15 to 25 minutes on two cores. A killed run
# leaves no partial result, and the Go tool continues where it was.
#
# containerd-shim-runsc-v1, of gVisor, has one change: its SetOOMScore does nothing. It would fail
# where root lacks CAP_SYS_RESOURCE, as in most containers, and the shim would end.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
src=$root/internal/test/testenv/cluster/testdata
version=$(sed -n 's/^const clusterVersion = "\(.*\)"$/\1/p' "$root/internal/test/testenv/cluster.go")
cache=${TESTENV_CLUSTERS:-${SANDBAR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sandbar}}
dir=$cache/cluster-$version

say() { echo "cluster: $*" >&2; }

[ -n "$version" ] || { say "no clusterVersion in internal/test/testenv/cluster.go"; exit 1; }
mkdir -p "$cache"
if command -v flock >/dev/null 2>&1; then
	exec 9>"$dir.lock"
	flock -n 9 || { say "waiting for another build"; flock 9; }
fi
if [ -d "$dir" ]; then
	say "$dir exists"
	exit
fi
tmp=$dir.new
rm -rf "$tmp"
mkdir -p "$tmp/bin" "$tmp/src"
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# build MODULE PACKAGE NAME [FLAG…]
build() {
	module=$1 package=$2 name=$3
	shift 3
	say "building $name"
	(cd "$src/$module" && env -u GOOS -u GOARCH CGO_ENABLED=0 GOFLAGS=-mod=mod GOTOOLCHAIN="${GOTOOLCHAIN:-local}" \
		go build -trimpath "$@" -o "$tmp/bin/$name" "$package" 9>&-)
}

kubernetes=$(cd "$src/kubernetes" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
build kubernetes . kubernetes -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes"
build kubernetes ./pause pause -ldflags "-s -w"

tags='no_btrfs no_devmapper no_zfs no_aufs'
for name in containerd containerd-shim-runc-v2 ctr; do
	build containerd github.com/containerd/containerd/v2/cmd/$name $name -tags "$tags" -ldflags "-s -w"
done
for name in ipam/host-local main/loopback main/ptp; do
	build containerd github.com/containernetworking/plugins/plugins/$name "${name#*/}" -ldflags "-s -w"
done

build gvisor gvisor.dev/gvisor/runsc runsc -ldflags "-s -w"
(cd "$src/gvisor" && go mod download github.com/containerd/containerd/v2)
cp -r "$(cd "$src/gvisor" && go list -m -f '{{.Dir}}' github.com/containerd/containerd/v2)" "$tmp/src/containerd"
chmod -R u+w "$tmp/src/containerd"
sed -i '/^func SetOOMScore(/a\	if true { return nil }' "$tmp/src/containerd/pkg/sys/oom_linux.go"
cp "$src/gvisor/go.mod" "$tmp/src/go.mod"
cp "$src/gvisor/go.sum" "$tmp/src/go.sum"
(cd "$tmp/src" && go mod edit -replace "github.com/containerd/containerd/v2=$tmp/src/containerd" go.mod)
build gvisor gvisor.dev/gvisor/shim containerd-shim-runsc-v1 -ldflags "-s -w" -modfile="$tmp/src/go.mod"

rm -rf "$tmp/src"
mv "$tmp" "$dir"
say "built $dir"

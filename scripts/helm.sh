#!/bin/sh
# Builds Helm for the test of the chart in deploy/helm, from the module in
# internal/test/testenv/cluster/testdata/helm. The result is beside the cluster of
# scripts/cluster.sh, under its version. If it exists, the script does nothing. The first time takes
# about 5 minutes on two cores.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
src=$root/internal/test/testenv/cluster/testdata/helm
version=$(sed -n 's/^const helmVersion = "\(.*\)"$/\1/p' "$root/internal/test/testenv/helm.go")
cache=${TESTENV_CLUSTERS:-${SANDBAR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sandbar}}
dir=$cache/helm-$version

say() { echo "helm: $*" >&2; }

[ -n "$version" ] || { say "no helmVersion in internal/test/testenv/helm.go"; exit 1; }
if [ -x "$dir/helm" ]; then
	say "$dir/helm exists"
	exit
fi
mkdir -p "$dir"
say "building helm"
# Concurrent builds: the last rename wins.
trap 'rm -f "$dir/helm.$$"' EXIT
trap 'exit 1' HUP INT TERM
(cd "$src" && env -u GOOS -u GOARCH CGO_ENABLED=0 GOFLAGS=-mod=mod GOTOOLCHAIN="${GOTOOLCHAIN:-local}" \
	go build -trimpath -ldflags "-s -w" -o "$dir/helm.$$" helm.sh/helm/v4/cmd/helm)
mv "$dir/helm.$$" "$dir/helm"
say "built $dir/helm"

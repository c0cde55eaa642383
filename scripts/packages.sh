#!/bin/sh
# Makes a deb and an rpm package of an existing bin/sandbar, with nfpm from
# .cache/bin. It needs neither dpkg nor rpm.
#
#   scripts/packages.sh VERSION [DIRECTORY]    default: bin
set -eu

version=$1
cd "$(dirname "$0")/.."
to=${2:-bin}
cache=${TESTENV_CACHE:-$PWD/.cache}

# A package's version begins with a digit and has no "-", which separates the revision.
number=$(printf %s "${version#v}" | tr - .)
case $number in
[0-9]*.[0-9]*) ;;
*) number=0.0.0+$number ;;
esac

sh scripts/tools.sh packages
files=.cache/packages
mkdir -p $files "$to"
sed 's|/usr/local/bin/sandbar|/usr/bin/sandbar|' packaging/sandbar.service >$files/sandbar.service
cat LICENSE >$files/copyright
for licence in internal/wasm/artefact/*.LICENSE; do
	[ ! -e "$licence" ] || { echo; echo "$(basename "$licence" .LICENSE):"; cat "$licence"; } >>$files/copyright
done
for format in deb rpm; do
	VERSION=$number ARCH=$(go env GOARCH) "$cache/bin/nfpm" package --config packaging/nfpm.yaml --packager $format --target "$to/"
done

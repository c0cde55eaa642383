#!/bin/sh
# Runs every fuzz target for TIME, one after the other.
#
#   scripts/fuzz.sh TIME PACKAGE…      such as 10s ./...
set -eu
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
time=${1:-10s}
shift || true
[ $# -gt 0 ] || set -- ./...

found=
failed=
for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "$@"); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		found=1
		echo "--- $package $target"
		# Go's default spends up to a minute on shortening each input with new coverage.
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$package" || failed="$failed $target"
	done
done
[ -n "$found" ] || { echo "no fuzz target in $*" >&2; exit 1; }
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }

#!/bin/sh
# Checks the sources: gofmt, go vet for every supported platform, staticcheck and
# govulncheck, the types of the browser console; and the subjects of commits since the last
# release (CONTRIBUTING.md). It runs all checks before it fails.
set -u
cd "$(dirname "$0")/.." || exit 1
export CGO_ENABLED=0
cache=${TESTENV_CACHE:-$PWD/.cache}
failed=

step() { # NAME COMMAND…
	name=$1
	shift
	if "$@"; then echo "ok    $name"; else echo "FAIL  $name"; failed=1; fi
}

formatted() {
	unformatted=$(find . \( -name .git -o -name .cache \) -prune -o -name '*.go' -exec gofmt -l {} +) || return 1
	[ -z "$unformatted" ] && return
	echo "not formatted with gofmt:"
	echo "$unformatted"
	return 1
}

subjects() {
	git rev-parse --git-dir >/dev/null 2>&1 || return 0 # an archive of the sources
	# Before the first release: since the last change of this file.
	base=$(git describe --tags --abbrev=0 2>/dev/null) || base=$(git log -n 1 --format=%H -- scripts/lint.sh)
	wrong=$(git log --no-merges --format='%h %s' "${base:-HEAD}..HEAD" | awk '
		{ h = $1; sub(/^[^ ]+ /, "") }
		length($0) > 72 || /\.$/ || !/^[^ :]+(, [^ :]+)*: [a-z]/ { print h, $0 }')
	[ -z "$wrong" ] && return
	echo 'subjects of commits that are not "path: lower-case verb object" in 72 characters:'
	echo "$wrong"
	return 1
}

vulnerable() {
	# Exit code 3: vulnerabilities found. Any other error, such as an unreachable
	# database, is not a fault of the sources.
	"$cache/bin/govulncheck" ./... >"$cache/govulncheck.log" 2>&1
	case $? in
	0) return 0 ;;
	3) cat "$cache/govulncheck.log"; return 1 ;;
	*) echo "govulncheck failed: $(grep . "$cache/govulncheck.log" | tail -n 1)" ;;
	esac
}

types() {
	sh scripts/console.sh && node "$cache/typescript/node_modules/typescript/lib/tsc.js" -p internal/server/console/app
}

sh scripts/tools.sh lint
step gofmt formatted
step subjects subjects
for platform in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do
	step "go vet $platform" env GOOS="${platform%/*}" GOARCH="${platform#*/}" go vet ./...
done
if [ -x "$cache/bin/staticcheck" ]; then
	step staticcheck "$cache/bin/staticcheck" ./...
else
	echo "FAIL  staticcheck could not be built"
	failed=1
fi
if [ -f "$cache/typescript/node_modules/typescript/lib/tsc.js" ] && command -v node >/dev/null 2>&1; then
	step "types of the console" types
else
	echo "--    the TypeScript compiler could not be fetched"
fi
if [ -x "$cache/bin/govulncheck" ]; then
	step govulncheck vulnerable
else
	echo "--    govulncheck could not be built"
fi
[ -z "$failed" ]

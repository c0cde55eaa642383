#!/bin/sh
# Builds Sandbar's guest program for the mode v86 into FILE. The build is reproducible;
# an identical FILE is not rewritten.
#
#   scripts/v86-guest.sh FILE
set -eu

file=$1
cd "$(dirname "$0")/.."
env -u GOFLAGS GOOS=linux GOARCH=386 GO386=sse2 CGO_ENABLED=0 \
	go build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" -o "$file.new.$$" ./cmd/sandbar-guest
if cmp -s "$file.new.$$" "$file"; then rm "$file.new.$$"; else mv "$file.new.$$" "$file"; fi

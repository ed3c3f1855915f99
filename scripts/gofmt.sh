#!/bin/sh
# gofmt.sh: names the files that gofmt would change.
set -u
cd "$(dirname "$0")/.." || exit 1
files=$(gofmt -l .) || exit 1
[ -z "$files" ] && exit 0
printf 'not as gofmt writes them (make fmt mends it):\n%s\n' "$files" >&2
exit 1

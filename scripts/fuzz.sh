#!/bin/sh
# fuzz.sh TIME: runs each fuzz target of the library for TIME. Targets are found, not listed.
set -u
cd "$(dirname "$0")/.." || exit 1
time=${1:-10s}
rc=0
for dir in $(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort -u); do
		scripts/stage.sh "fuzz $dir $target" go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" || rc=1
	done
done
exit "$rc"

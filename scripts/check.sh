#!/bin/sh
# check.sh MODULE...: every check that is not a test, each a stage of its own. All of them run, also
# after a failure; the exit status is 1 if any failed.
set -u
cd "$(dirname "$0")/.." || exit 1
modules="$*"
failed=""
stage() {
	name=$1
	scripts/stage.sh "$@" || failed="$failed, $name"
}
stage "gofmt" scripts/gofmt.sh
stage "go mod tidy" scripts/each.sh "$modules" go mod tidy -diff
stage "api" scripts/proto.sh --check
stage "vet" scripts/each.sh "$modules" go vet ./...
# shellcheck disable=SC2086 # the list is meant to be split
stage "lint" scripts/lint.sh $modules
stage "cross-vet" scripts/cross.sh
stage "spec" spec/check.sh
[ -z "$failed" ] && exit 0
printf 'check: failed: %s\n' "${failed#, }" >&2
exit 1

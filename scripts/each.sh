#!/bin/sh
# each.sh "MODULE ..." COMMAND...: runs COMMAND in each module's folder; all of them, also after a
# failure, so that one run shows every fault. A go vet, build or test passes over a module that has
# no packages, such as tools: go itself calls that a failure.
set -u
cd "$(dirname "$0")/.." || exit 1
modules=$1
shift
rc=0
for module in $modules; do
	case "$1 ${2:-}" in
	"go vet" | "go build" | "go test")
		(cd "$module" && go list ./... 2>/dev/null | grep -q .) || continue
		;;
	esac
	(cd "$module" && "$@") || {
		printf 'failed in module %s: %s\n' "$module" "$*" >&2
		rc=1
	}
done
exit "$rc"

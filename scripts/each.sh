#!/bin/sh
# each.sh "MODULE ..." COMMAND...: runs COMMAND in each module's folder; all of them, also after a
# failure, so that one run shows every fault.
set -u
cd "$(dirname "$0")/.." || exit 1
modules=$1
shift
rc=0
for module in $modules; do
	(cd "$module" && "$@") || {
		printf 'failed in module %s: %s\n' "$module" "$*" >&2
		rc=1
	}
done
exit "$rc"

#!/bin/sh
# need.sh TOOL...: succeeds when every TOOL is present, as present.sh has it. With CI=true what is missing is installed; a
# person's machine is never changed unasked, so there it only says which one command would do it.
set -u
cd "$(dirname "$0")/.." || exit 1

missing() {
	for tool in "$@"; do
		scripts/present.sh "$tool" || printf '%s ' "$tool"
	done
}

if ! scripts/present.sh go; then
	echo "missing: go. Install Go 1.26 or newer (https://go.dev/dl/); make services does not do that." >&2
	exit 1
fi
absent=$(missing "$@")
[ -z "$absent" ] && exit 0
if [ "${CI:-}" = true ]; then
	scripts/services.sh || exit 1
	absent=$(missing "$@")
	[ -z "$absent" ] && exit 0
fi
printf 'missing: %s\nTo install it: sudo make services\n' "$absent" >&2
exit 1

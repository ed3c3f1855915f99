#!/bin/sh
# need.sh TOOL...: succeeds when every TOOL is present. With CI=true what is missing is installed; a
# person's machine is never changed unasked, so there it only says which one command would do it.
set -u
cd "$(dirname "$0")/.." || exit 1

present() {
	case $1 in
	# Both the race detector and spin's verifiers need a C compiler: the one that Go would call.
	cc) command -v "$(go env CC 2>/dev/null || echo gcc)" >/dev/null 2>&1 ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

missing() {
	for tool in "$@"; do
		present "$tool" || printf '%s ' "$tool"
	done
}

if ! present go; then
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
printf 'missing: %s\nTo install it: make services\n' "$absent" >&2
exit 1

#!/bin/sh
# services.sh: installs what the tests and checks need beside Go. Today that is a C compiler (for the
# race detector and for spin's verifiers) and spin; no server runs. Run it as often as you like.
set -u

packages=""
command -v "$(go env CC 2>/dev/null || echo gcc)" >/dev/null 2>&1 || packages="$packages gcc libc6-dev"
command -v spin >/dev/null 2>&1 || packages="$packages spin"

if [ -z "$packages" ]; then
	echo "services: everything is here (C compiler, spin)"
	exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
	printf 'services: this script knows Debian only (no apt-get here). Install by hand:%s\n' "$packages" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	printf 'services: installing%s needs root. Run: sudo make services\n' "$packages" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # the list is meant to be split
apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages || {
	printf 'services: apt-get could not install%s; its message stands above\n' "$packages" >&2
	exit 1
}
printf 'services: installed%s\n' "$packages"

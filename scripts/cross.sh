#!/bin/sh
# cross.sh: go vet of the library for the platforms that this machine is not. cgo is off: the product
# is pure Go, and a file that only builds with a C compiler would be found here.
set -u
cd "$(dirname "$0")/.." || exit 1
rc=0
for platform in darwin/arm64 linux/arm64 windows/amd64; do
	printf 'cross-vet: %s\n' "$platform"
	CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go vet ./... || rc=1
done
exit "$rc"

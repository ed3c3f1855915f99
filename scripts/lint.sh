#!/bin/sh
# lint.sh MODULE...: golangci-lint, at the version that tools/go.mod names, over each module that has
# Go packages. The first build of the linter takes about a minute on two cores.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$(pwd)
(cd tools && go build -o "$root/bin/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint) || exit 1
rc=0
for module in "$@"; do
	(cd "$module" && go list ./... 2>/dev/null | grep -q .) || continue
	printf 'lint: module %s\n' "$module"
	(cd "$module" && "$root/bin/golangci-lint" run --config "$root/.golangci.yml" --timeout 10m ./...) || rc=1
done
exit "$rc"

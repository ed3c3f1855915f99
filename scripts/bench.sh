#!/bin/sh
# bench.sh FLAG...: builds the benchmark command, a module of its own, and runs it.
set -u
cd "$(dirname "$0")/../bench" || exit 1
exec go run . "$@"

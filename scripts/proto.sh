#!/usr/bin/env bash
# proto.sh [--check]: what is generated from api/ is generated anew. With --check nothing is written: it fails where the descriptions are not as they should be, where what is checked in differs from what they
# generate, and where they break what api/image.binpb says was there before.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export GOWORK=off
(cd tools/buf && go build -o "$root/bin/" github.com/bufbuild/buf/cmd/buf google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go)
cd api
../bin/buf lint
if [ "${1:-}" = --check ]; then
	../bin/buf breaking --against image.binpb
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
	../bin/buf generate -o "$out/api"
	diff -r "$out/internal/gen" ../internal/gen || { echo "internal/gen is not what api/ generates: run make proto" >&2; exit 1; }
else
	../bin/buf generate
fi

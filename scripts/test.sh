#!/usr/bin/env bash
# test.sh FLAGS AND PACKAGES: go test, and at the end which stores ran the conformance suite.
set -uo pipefail
go test -json "$@" | go run ./internal/suites

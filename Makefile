# Tenure: what a person types. `make` alone lists the targets.
#
# GOWORK=off in every recipe: go.work is there for editors, and it would raise the versions of what
# the product depends on to what the linters depend on. What is tested here is what importers get.

SHELL := /bin/sh
.DEFAULT_GOAL := help
export GOWORK := off

# Every module of the repository. Each is linted, tidied and vetted on its own.
MODULES := $(patsubst ./%,%,$(patsubst %/go.mod,%,$(wildcard ./go.mod ./*/go.mod ./*/*/go.mod ./*/*/*/go.mod)))

STAGE := scripts/stage.sh
TEST_FLAGS ?=
BENCH_FLAGS ?=
FUZZ_TIME ?= 10s

.PHONY: help run test check bench services build proto fmt lint vet cross tidy spec fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

run: ## see a paused worker's late write accepted without fencing and refused with it
	@scripts/run.sh

# What stops processes and goes by leases of a second runs by itself: beside other packages, on two processors, such a
# lease is lost to the wait for one of them.
test: ## all tests of the library and the command, with the race detector
	@scripts/need.sh go cc postgres pgbouncer psycopg2 ruby-pg node
	@$(STAGE) "build the S3 server" sh -c 'cd internal/testdb/s3 && go tool -n versitygw >/dev/null'
	@$(STAGE) "test" sh -c 'scripts/test.sh -race -timeout 15m $(TEST_FLAGS) $$(go list ./... | grep -v -e "/drill$$" -e "/cmd/tenure$$")'
	@$(STAGE) "test what stops processes" go test -race -p 1 -timeout 15m $(TEST_FLAGS) ./drill ./cmd/tenure
	@$(STAGE) "test gRPC, Connect, NATS and Watermill" scripts/each.sh "fence/fencegrpc fence/fenceconnect budget/budgetgrpc internal/phases outbox/outboxnats outbox/outboxwatermill" go test -race -timeout 5m ./...
	@$(STAGE) "test bench" sh -c 'cd bench && go test -timeout 5m ./...'

check: ## everything that is not a test: format, vet, lint, other platforms, go.mod, models
	@scripts/need.sh go cc spin
	@scripts/check.sh $(MODULES)

bench: ## the stores against their floors and against leases written by hand, in one run
	@scripts/need.sh go postgres pgbouncer
	@$(STAGE) "bench" scripts/bench.sh $(BENCH_FLAGS)

services: ## install what the tests and checks need beside Go (Debian: apt-get)
	@scripts/services.sh

build: ## bin/tenure
	@$(STAGE) "build" go build -o bin/ ./cmd/tenure

proto: ## what is generated from api/, anew
	@scripts/proto.sh

fmt: ## gofmt, in place
	@gofmt -w .

lint: ## golangci-lint, every module
	@$(STAGE) "lint" scripts/lint.sh $(MODULES)

vet: ## go vet, every module
	@$(STAGE) "vet" scripts/each.sh "$(MODULES)" go vet ./...

cross: ## go vet for the platforms that this machine is not
	@$(STAGE) "cross-vet" scripts/cross.sh

# Writes nothing: in a checkout where somebody has fetched a module that no file imports yet, a tidy
# would take it away. To write, run `go mod tidy` in the module that is meant.
tidy: ## what go mod tidy would change, every module; writes nothing
	@scripts/each.sh "$(MODULES)" go mod tidy -diff

spec: ## check the models, and that each broken twin is refuted
	@scripts/need.sh cc spin
	@$(STAGE) "spec" spec/check.sh

fuzz: ## each fuzz target for FUZZ_TIME (10s)
	@scripts/fuzz.sh $(FUZZ_TIME)

clean: ## remove what was built
	@rm -rf bin spec/out bench/out

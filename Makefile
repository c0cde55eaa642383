# Targets to build, test and package Sandbar. "make help" lists them.
#
# Requirements: Go and make; a C compiler for the race detector only. As root on a
# Debian-like system "make test" installs the tools of the tests (see
# scripts/tools.sh; NO_APT=1 prevents it).

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 10s
# Packages to test, and tests to run in them: make test PKGS=./engine RUN=TestQueue
PKGS     ?= ./...
RUN      ?=

# 0: build without the driver wasm and the modes simple and v86.
WASM     ?= 1
# 0: build without the browser console.
CONSOLE  ?= 1

export CGO_ENABLED = 0
export WASM CONSOLE

RUNNER      = .cache/bin/runner
RUNNERFLAGS = $(if $(RACE),-race) $(if $(TESTENV_LONG),-timeout 4h) $(if $(RUN),-run '$(RUN)') $(if $(P),-p $(P)) -summary .cache/summary
# Commands that run on this machine, even if GOOS or GOARCH names another.
HOST        = env -u GOOS -u GOARCH

.PHONY: help build demo test test-all test-user race lint fuzz bench cluster packages sdk soak kills security tools clean vet runner

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: ## build bin/sandbar, with embedded agent, console and WebAssembly modules, bin/sandbar-agent and bin/sandbar-porter (WASM=0, CONSOLE=0: without)
	@sh scripts/build.sh $(VERSION)

# The first build takes minutes, so the demonstration runs as soon as its parts are built.
demo: ## show untrusted programs run, stream and be contained; then build
	@sh scripts/build.sh $(VERSION) demo

test: build tools vet runner ## run all tests; as root, also the tests of an ordinary user (RACE=1: with the race detector)
	@$(RUNNER) $(RUNNERFLAGS) $(PKGS)

test-all: ## run all tests, including cases that are too long for "make test"
	@TESTENV_LONG=1 $(MAKE) --no-print-directory test

test-user: build tools runner ## run the tests as an ordinary user (as root: as an unused uid)
	@$(RUNNER) $(RUNNERFLAGS) -user $(PKGS)

race: runner ## run all tests with the race detector
	@sh scripts/tools.sh race
	@$(MAKE) --no-print-directory test RACE=1

lint: ## run gofmt, go vet for every platform, staticcheck and govulncheck; check the types of the browser console and the subjects of commits
	@sh scripts/lint.sh

fuzz: ## run every fuzz target for FUZZTIME (10s)
	@sh scripts/fuzz.sh $(FUZZTIME) $(PKGS)

bench: build tools ## measure the numbers of SPECIFICATION.md
	@sh scripts/tools.sh bench
	@# embedagent: otherwise the benchmark would start its own large binary as the
	@# agent, and measure that.
	@$(HOST) go run -tags embedagent ./bench

# The daemon refuses variables that begin with SANDBAR_ and that it does not know, so tests get this
# one under another name.
ifdef SANDBAR_CACHE
export TESTENV_CLUSTERS := $(abspath $(SANDBAR_CACHE))
unexport SANDBAR_CACHE
endif

cluster: ## build a Kubernetes and Helm for tests into SANDBAR_CACHE (default: sandbar in the user's cache directory); takes about 25 minutes, once
	@nice sh scripts/cluster.sh
	@nice sh scripts/helm.sh

TIME ?= 10m

packages: build ## build a deb and an rpm package of bin/sandbar in bin
	@sh scripts/packages.sh $(VERSION)

sdk: tools ## build the Python wheel and the npm package into bin (SDK_ARCHS="amd64 arm64": also wheels and npm packages with the command, for Linux)
	@sh scripts/sdk.sh $(VERSION)

soak: build tools ## load a daemon in all ways for TIME (10m) and report its growth
	@$(HOST) go run -tags embedagent ./bench -soak $(TIME)

N ?= 200

kills: build tools ## kill a daemon under load N times (200) and report leftovers
	@KILLS=$(N) $(HOST) go test -count=1 -timeout 24h -run '^TestKilledDaemon$$' -v ./internal/test/e2e

DRIVERS ?= native local
FUZZ ?= 4s

security: build tools ## run escape-suite with each driver of DRIVERS, native in every role, fuzzing for FUZZ (4s), and write the tables of SECURITY.md
	@mkdir -p .cache/escape
	@! [ -f .cache/images/debian.tar ] || SANDBAR_STATE_DIR="$$PWD/.cache/escape/state" bin/sandbar images import .cache/images/debian.tar debian
	@# PATH: "make tools" builds runsc in .cache/bin, for machines without one.
	@for d in $(DRIVERS); do roles=; [ $$d != native ] || roles="--role all"; [ $$d != native ] || ! [ -f .cache/images/debian.tar ] || roles="$$roles --image debian"; \
		echo "escape-suite --driver $$d $$roles"; SANDBAR_STATE_DIR="$$PWD/.cache/escape/state" PATH="$$PATH:$$PWD/.cache/bin" bin/sandbar escape-suite --driver $$d $$roles --fuzz $(FUZZ) --json >.cache/escape/$$d.json || exit 1; done
	@$(HOST) go run ./internal/driver/escapesuite/table SECURITY.md $(DRIVERS:%=.cache/escape/%.json)

tools: ## fetch the tools of the tests that this machine lacks
	@sh scripts/tools.sh test

clean: ## remove all built and fetched files
	rm -rf bin .cache internal/agent/embedded/sandbar-agent internal/agent/embedded/.sandbar-agent.* internal/agent/porter/embedded/sandbar-porter internal/agent/porter/embedded/.sandbar-porter.* internal/wasm/artefact/*.wasm* internal/wasm/artefact/libv86.js* internal/wasm/artefact/*bios.bin* internal/wasm/artefact/sandbar-guest internal/server/console/dist internal/server/console/app/node_modules

vet:
	go vet ./...

runner:
	@mkdir -p .cache/bin
	@$(HOST) go build -o $(RUNNER) ./internal/test/testenv/runner
